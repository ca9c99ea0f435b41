"""Trusted certificates (the default ones and those of a file), and the passwords of proxies, which stay secret."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kbeval.errors import UsageError

if TYPE_CHECKING:
    import ssl


def checked_ca_file(path: str | None, where: str) -> str | None:
    """The path, after checking that it is a file with certificates. `where`: the option or the key that names it."""
    if path is None:
        return None
    import ssl

    if not Path(path).is_file():
        msg = f"{where}: there is no file {path}; give a file with certificates (PEM)"
        raise UsageError(msg)
    try:
        ssl.create_default_context().load_verify_locations(cafile=path)
    except (ssl.SSLError, OSError) as error:
        msg = f"{where}: {path} has no certificates in PEM format"
        raise UsageError(msg) from error
    return path


def ssl_context(ca_file: str | None) -> ssl.SSLContext:
    """The certificates that connections are checked against."""
    import httpx2

    found = httpx2.create_ssl_context()
    if ca_file is not None:
        found.load_verify_locations(cafile=ca_file)
    return found


def untrusted(error: BaseException) -> str | None:
    """What is wrong with the certificate of a server, if that is why a connection failed."""
    import ssl

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return (
                f"the certificate of the server is not trusted: {cause.verify_message};"
                " to trust it, set ca_file (or SSL_CERT_FILE in the environment) to a file with certificates"
            )
        cause = cause.__cause__ or cause.__context__
    return None


def proxy_passwords() -> list[str]:
    """The passwords of the proxies that the environment names."""
    import urllib.parse
    import urllib.request

    found = []
    for proxy in urllib.request.getproxies().values():
        try:
            password = urllib.parse.urlsplit(proxy).password
        except ValueError:
            continue
        if password:
            found.append(urllib.parse.unquote(password))
    return found
