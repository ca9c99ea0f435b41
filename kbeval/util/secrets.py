"""Finds secrets in a configuration, by the names of keys and the form of values.

Keys have one of four levels. `SECRET`: every value is hidden (`api_key`, `password`, `Authorization`). `LOGIN`: a name
with a password is hidden (`auth`). `SUSPICIOUS`: a value that looks random is hidden (`key`, `private_key_id`).
`PLAIN`: only values of a well-known form are hidden (`ghp_…`, a JSON Web Token, credentials in a URL, `PASSWORD=…` in
a command). Hashes and ids under plain keys are shown.
"""

from __future__ import annotations

import base64
import binascii
import functools
import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

PLAIN, SUSPICIOUS, LOGIN, SECRET = range(4)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- keys --------------------------------------------------------------------------------------------

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_WORD = re.compile(r"[\W_]+")
# One of these words makes a key secret.
_SECRET_WORDS = _words(
    "password passwords passwd pwd passphrase passcode passwort kennwort contrasena contraseña senha"
    " пароль 密码 パスワード secret secrets credential credentials cred creds"
    " authorization bearer cookie cookies dsn sas sig signature webhook webhooks jwt otp totp htpasswd"
)
# With one of these words, a `key` is a secret; `key` alone, or with any other word, is only suspicious.
_LOCKS = _words(
    "api access secret private signing encryption account shared master ssh subscription storage service auth client"
    " license licence functions function ingest write admin hmac deploy aes rsa gpg pgp openai azure anthropic cohere"
    " voyage pinecone qdrant weaviate mistral gemini google aws gcp jina groq together"
)
# With one of these words, a `key` is not a secret.
_OTHER_KEYS = _words(
    "primary foreign sort cache partition dedup join group index document doc query routing lookup order natural row"
    " column map dict json metadata field hash unique composite idempotency public"
)
# With one of these words, a `token` is text of a language model, or a number of tokens.
_OTHER_TOKENS = _words(
    "pad eos bos unk cls sep mask special stop start end next refusal first last image max min per separator prompt"
    " completion input output total new suppress forced decoder eot sot user system assistant tool think each single"
    " placeholder context begin blank abstain"
)
# The last word of a key that describes a secret but is not one itself: `password_min_length`, `api_key_env`.
_ABOUT = _words(
    "count counts length len size limit limits policy policies name names type types kind version ttl timeout expiry"
    " expires expiration path paths file files filename folder dir directory env envvar var variable enabled required"
    " strategy model field fields column mode algorithm alg format provider method rotation days hours minutes seconds"
    " ms ratio rate cost usage budget window price estimate index url uri endpoint host port region scope scopes issuer"
    " audience arn id ids source store manager backend location header headers prefix suffix retries retry attempts"
    " pool interval hash salt date at in accuracy score ok check checks rule rules leak leaks detection filter"
)
# Exceptions: with these endings the value is still a secret.
_STILL_SECRET = {("webhook", "url"), ("webhook", "uri"), ("session", "id"), ("password", "hash"), ("password", "salt")}
_STILL_SECRET |= {("sas", "url"), ("sas", "uri"), ("webhook", "endpoint"), ("passwd", "hash"), ("cookie", "header")}
_SESSIONS = frozenset(("session", "sessionid", "sessid", "phpsessid", "jsessionid"))
# Written as one word.
_JOINED = re.compile(
    r"(apikey|secretkey|accesskey|privatekey|signingkey|authkey|accountkey|subscriptionkey|password|passwd|passphrase"
    r"|connectionstring|connectionstr|connstring|connstr|authorization|credential|clientsecret|appsecret|basicauth)s?$"
    r"|passw|secret(?!ar)"
)
_AUTH = frozenset(("auth", "authentication"))


@functools.lru_cache(maxsize=4096)
def judge_key(key: str) -> int:
    """The level that the name of a key gives to its value: PLAIN, SUSPICIOUS, LOGIN or SECRET."""
    key = unicodedata.normalize("NFKC", key)
    words = [word for part in _NOT_WORD.split(key) for word in _CAMEL.sub(" ", part).lower().split()]
    if not words:
        return PLAIN
    found = max(_judge_words(words), _judge_joined(words))
    if found == SECRET and len(words) > 1 and words[-1] in _ABOUT and (words[-2], words[-1]) not in _STILL_SECRET:
        return SUSPICIOUS
    return found


def _judge_words(words: list[str]) -> int:
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    found = SECRET if _SECRET_WORDS & set(words) or _has_connection(words) else PLAIN
    if last in ("key", "keys") or (before == "key" and last in _ABOUT):
        found = max(found, _judge_lock(words[:-1] if last != "key" and before == "key" else words))
    if last == "token" or last.endswith("token") or (before == "token" and last in _ABOUT):
        is_text = set(words) & _OTHER_TOKENS or last.removesuffix("token") in _OTHER_TOKENS
        found = max(found, PLAIN if is_text else SUSPICIOUS if before == "token" else SECRET)
    if last in _SESSIONS or (before in _SESSIONS and last in ("id", "key", "value", "data")):
        found = SECRET
    if last in _AUTH:
        found = max(found, SECRET if before in ("basic", "http", "proxy") else LOGIN)
    if last in ("pass", "pin", "pat", "salt", "tokens", "sign"):
        found = max(found, SUSPICIOUS)
    return found


def _judge_lock(words: list[str]) -> int:
    """The level of a name that ends with `key`."""
    before = words[-2] if len(words) > 1 else ""
    if before in _LOCKS:
        return SECRET
    return PLAIN if before in _OTHER_KEYS or before in ("num", "number", "n") else SUSPICIOUS


def _has_connection(words: list[str]) -> bool:
    known = (("connection", "string"), ("conn", "string"), ("conn", "str"))
    return any(pair in known for pair in itertools.pairwise(words))


def _judge_joined(words: list[str]) -> int:
    joined = "".join(words)
    return SECRET if _JOINED.search(joined) or any(map(_JOINED.search, words)) else PLAIN


def is_secret_value(level: int, value: str | float) -> bool:
    """Is the whole value a secret, given the level of its key? Placeholders are not secrets: `${TOKEN}`, `***`."""
    if isinstance(value, str):
        if not value.strip() or _STANDS_FOR.fullmatch(value):
            return False
        is_login = level == LOGIN and ":" in value and not _NOT_A_PAIR.search(value)
        return level == SECRET or is_login or (level != PLAIN and looks_random(value))
    # Few numbers are secrets, and those are long; a number of tokens or a cookie's age is short.
    return level == SECRET and abs(value) >= 10_000 and float(value).is_integer()


# A placeholder, or a reference to where the secret comes from.
_STANDS_FOR = re.compile(
    r"\s*(?:(?:Bearer|Basic|Token)\s+)?(?:\$\{\{?[^{}]*\}?\}|\{\{[^{}]*\}\}|\$[A-Z][A-Z0-9]*_[A-Z0-9_]+|%[A-Z][A-Z0-9_]+%"
    r"|<[^<>]*>|\*{3,}|x{4,}|X{4,}|\[?(?i:redacted|masked|removed)\]?"
    r"|env:[A-Z][A-Z0-9_]*|os\.environ/[A-Z][A-Z0-9_]*)\s*"
)
_NOT_A_PAIR = re.compile(r"\s|://|^[A-Za-z]:[\\/]|^/")


def looks_random(text: str) -> bool:
    """Is it one word of letters and digits that looks generated, not written by a person?"""
    text = text.strip().strip("\"'")
    if not re.fullmatch(r"[A-Za-z0-9+/=_.~\-]{16,}", text) or not re.search(r"\d", text):
        return False
    if not re.search(r"[A-Za-z]", text) or text.startswith(("/", "./", "../", "~")):
        return False
    # Names and versions consist of words: `text-embedding-3-large`, `docs/guide-2.md`.
    longest = max(re.split(r"[+/=_.~\-]", text), key=len)
    if len(longest) < 10 or not re.search(r"\d", longest) or not re.search(r"[A-Za-z]", longest):
        return _entropy(text) >= 4.2
    return _entropy(text) >= 3.0


def _entropy(text: str) -> float:
    """Bits per character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


# --- values ------------------------------------------------------------------------------------------

# Tokens that are recognized by their prefix. The rest must be long, and for short prefixes contain a digit.
_SHAPES = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|$)"
    r"|\beyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*){0,3}"
    r"|https?://hooks\.slack(?:-gov)?\.com/\S+"
    r"|https?://(?:\w+\.)?discord(?:app)?\.com/api/(?:v\d+/)?webhooks/\S+"
    r"|https?://[\w.-]*webhook\.office\.com/\S+|https?://[\w.-]*\.logic\.azure\.com\S+"
    r"|(?<![\w-])(?:"
    r"sk-(?:ant|proj|live|test|or|svcacct|admin|lf|None)-[\w-]{6,}|sk-(?=[A-Za-z]*\d)[A-Za-z0-9]{12,}"
    r"|[srp]k_(?:live|test)_\w{6,}|whsec_[\w+/=]{8,}"
    r"|gh[pousr]_\w{10,}|github_pat_\w{10,}|gl(?:pat|ptt|dt|rt|cbt|soat|ft)-[\w-]{8,}"
    r"|xox[abceoprs](?:\.xox[bp])?-[\w-]{8,}|xapp-[\w-]{10,}"
    r"|(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{12,}|AIza[\w-]{20,}|ya29\.[\w-]{10,}|GOCSPX-[\w-]{10,}"
    r"|hf_[A-Za-z0-9]{10,}|api_org_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{16,}|pypi-[\w-]{16,}|dckr_[op]at_[\w-]{16,}"
    r"|do[oprt]_v1_[a-f0-9]{16,}|shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{16,}|SG\.[\w-]{10,}\.[\w-]{10,}|key-[0-9a-f]{32}"
    r"|r8_[A-Za-z0-9]{16,}|gsk_[A-Za-z0-9]{16,}|pcsk_\w{10,}|tvly-[\w-]{10,}|pplx-\w{16,}|nvapi-[\w-]{16,}"
    r"|xai-\w{16,}|lsv2_(?:pt|sk)_\w{10,}|hv[sb]\.[\w-]{16,}|sq0[a-z]{3}-[\w-]{16,}|figd_[\w-]{16,}|dapi[a-f0-9]{32}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{20,}|[0-9]{8,10}:AA[\w-]{30,}|sntrys_[\w+/=]{16,}|glsa_\w{16,}|LTAI[A-Za-z0-9]{12,}"
    r"|pul-[a-f0-9]{32,}|linear_api_\w{16,}|ATATT[\w=-]{20,}|rk-[A-Za-z0-9]{20,}|jina_\w{20,}|pa-[A-Za-z0-9_-]{30,}"
    r")"
)
# Text without white space that may contain URLs, even nested ones.
_UNBROKEN = re.compile(r"[^\s\"'<>]+")
_SCHEME = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{0,30})://")
_AUTHORITY = re.compile(r"[^/?#]*")
_HOST = re.compile(r"[^:@]*(:\d*)?|\[[0-9a-fA-F:.]*\](:\d*)?")
_PARAMETER = re.compile(r"[?&;#]([\w.%\[\]-]+)=([^&;\s\"'#]+)")
_BEARER = re.compile(r"\b(bearer|basic|apikey|digest|negotiate)[ \t]+([\w.~+/=:-]{6,})", re.IGNORECASE)
# A value in quotes; if the text was cut off, without the second one.
_QUOTED = r"\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)|'(?:[^'\\]|\\.)*(?:'|\\?\Z)"


def _list_or_object(inner: str) -> str:
    """To where it ends or was cut off. `inner`: what it may contain besides text without brackets."""
    return rf"[\[{{](?:[^\[\]{{}}]{inner})*[\]}}]?"


_NESTED = _list_or_object("|" + _list_or_object("|" + _list_or_object("")))
# KEY=value, "key": "value", --key value, and a line `Key: value`.
_ASSIGNED = re.compile(rf"(?<![?&\w.%-])(-{{0,2}}[A-Za-z_][\w.-]*)[ \t]*=[ \t]*({_QUOTED}|[^\s;,&\"']+)")
_JSON = re.compile(rf"[\"']([^\"'\n]{{1,100}})[\"']\s*(?::|=>)\s*({_QUOTED}|{_NESTED}|[^\s,}}\]\"']+)")
_FLAG = re.compile(rf"(?<!\S)--?([A-Za-z][\w.-]*)[ \t]+({_QUOTED}|[^\s\"'-]\S*)")
_LINE = re.compile(r"^[ \t>-]*([A-Za-z][\w.-]*)[ \t]*:[ \t]+(\S[^\n]*)", re.MULTILINE)
_LOGIN = re.compile(r"(?<!\S)(?:-u|--user|--proxy-user)[ =]([^\s:]+:\S+)")


# A long text is searched in overlapping pieces, so that the time grows only linearly with its length.
_PIECE, _OVERLAP = 8_000, 1_000


@functools.lru_cache(maxsize=4096)
def secret_parts(text: str) -> tuple[tuple[int, int], ...]:
    """The parts of a text that are secret by their form, whatever the key: start and end positions."""
    if len(text) < 6:
        return ()
    found = list(known_parts(text))
    for start in range(0, len(text), _PIECE):
        piece = text[start : start + _PIECE + _OVERLAP]
        found += [(start + low, start + high) for low, high in _assigned_parts(piece)]
    return tuple(_merged(found))


def known_parts(text: str) -> Iterator[tuple[int, int]]:
    """Only unmistakable secrets: tokens of well-known forms, credentials in URLs and headers."""
    for match in _SHAPES.finditer(text):
        yield match.span()
    for start in range(0, len(text), _PIECE):
        piece = text[start : start + _PIECE + _OVERLAP]
        for low, high in _in_urls(piece):
            yield start + low, start + high
        for match in _BEARER.finditer(piece):
            if _is_authorization(match[1].lower(), match[2]):
                yield start + match.start(2), start + match.end(2)


def _assigned_parts(text: str) -> Iterator[tuple[int, int]]:
    """Values that are secret because of a key in the text itself."""
    for match in _LOGIN.finditer(text):
        yield match.span(1)
    for pattern in (_ASSIGNED, _JSON, _FLAG, _LINE):
        for match in pattern.finditer(text):
            value = match[2].rstrip()
            level = judge_key(match[1])
            # In prose the key is weaker evidence: `Secret: think step by step` may be a prompt.
            if pattern is _LINE and " " in value and "cookie" not in match[1].lower():
                level = min(level, SUSPICIOUS)
            bare = value.strip("\"'")
            if is_secret_value(level, bare) and not _is_flag_value(pattern, bare):
                is_quoted = value[:1] in "\"'" and len(value) > 1
                is_closed = is_quoted and value[-1] == value[0]
                yield match.start(2) + is_quoted, match.start(2) + len(value) - is_closed


def _is_flag_value(pattern: re.Pattern[str], bare: str) -> bool:
    """Short numbers and truth values inside a text are settings: `--cookie-age 30`, `"token": true`."""
    return bare.lower() in ("true", "false", "null", "none", "yes", "no") or (
        pattern is not _ASSIGNED and re.fullmatch(r"\d{1,4}", bare) is not None
    )


def _in_urls(text: str) -> Iterator[tuple[int, int]]:
    """User names with passwords, and parameters that grant access."""
    for unbroken in _UNBROKEN.finditer(text):
        run, offset = unbroken[0], unbroken.start()
        if "://" not in run:
            continue
        last_at = run.rfind("@")
        for match in _SCHEME.finditer(run):
            login = _login_in_url(run, match, last_at)
            if login is not None:
                yield offset + match.end(), offset + login
        # Once for the whole text: a parameter of an outer URL may also follow the inner one.
        for parameter in _PARAMETER.finditer(run, run.index("://")):
            if _grants_access(unquote(parameter[1])) and not _STANDS_FOR.fullmatch(parameter[2]):
                yield offset + parameter.start(2), offset + parameter.end(2)


def _login_in_url(run: str, scheme: re.Match[str], last_at: int) -> int | None:
    """The end of the user name and password of a URL, if it has them."""
    start = scheme.end()
    authority = _AUTHORITY.match(run, start)
    end = start + authority[0].rfind("@") if authority and "@" in authority[0] else start
    has_colon = run.find(":", start, end) >= 0
    if last_at >= start and (has_colon or (end == start and not _HOST.fullmatch(authority[0] if authority else ""))):
        # A password may contain any character, although it should not.
        end = last_at
        has_colon = run.find(":", start, end) >= 0
    if end == start or _STANDS_FOR.fullmatch(run, start, end):
        return None
    return end if has_colon or "ssh" not in scheme[1].lower() else None


def _grants_access(name: str) -> bool:
    lower = name.lower()
    is_lock = lower in ("key", "code", "auth", "pass", "pw", "se_sig") or judge_key(name) == SECRET
    return is_lock or lower.endswith(("signature", "credential"))


def _is_authorization(scheme: str, value: str) -> bool:
    """`Basic dXNlcjpwdw==` and `Bearer f3a…`, but not `basic retrieval`."""
    if scheme == "basic":
        try:
            return b":" in base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
        except (binascii.Error, ValueError):
            return False
    return bool(re.search(r"\d", value)) or len(value) >= 24 or bool(re.search(r"[a-z][A-Z]", value))


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    last: tuple[int, int] | None = None
    for start, end in sorted(spans):
        if end <= start:
            continue
        if last is None:
            last = start, end
        elif start <= last[1]:
            last = last[0], max(last[1], end)
        else:
            yield last
            last = start, end
    if last is not None:
        yield last
