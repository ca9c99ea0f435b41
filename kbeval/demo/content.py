"""The demo's knowledge base: the help pages of an invented note-taking service, and questions about them."""

from __future__ import annotations

from dataclasses import dataclass

DOCUMENTS = {
    "account/sign-in.md": """\
# Signing in

Use the address that you registered with and your password.
After five wrong passwords the account is locked for fifteen minutes.
A locked account can be opened at once with the link in the mail that we send.

## Two-factor sign-in

Turn it on under Settings, Security.
You need an authenticator app that shows six-digit codes.
Keep the ten recovery codes in a safe place: each works once.
Lost the phone and the codes? Support can reset two-factor sign-in after checking an invoice.

## Single sign-on

Single sign-on with SAML is part of the Team plan.
An administrator uploads the metadata of the identity provider.
Members who sign in for the first time are created automatically.
""",
    "account/delete.md": """\
# Leaving us

You can export everything before you go: Settings, Data, Export.
The export is one ZIP file with Markdown notes and their attachments.

## Deleting the account

Only the owner of a workspace can delete it.
Deleted accounts can be restored for thirty days, then they are gone for good.
Backups that still hold your notes are overwritten after ninety days.
Invoices are kept for ten years because the law asks for it.
""",
    "billing/plans.md": """\
# Plans and prices

The Free plan has two hundred notes and one device.
The Plus plan costs six euros a month and has no limit on notes.
The Team plan costs nine euros a month for each member.

## Changing the plan

An upgrade works at once and the rest of the month is charged in proportion.
A downgrade takes effect at the end of the paid period.
Nothing is deleted after a downgrade, but notes above the limit become read-only.

## Discounts

Schools and charities pay half; send us a certificate.
Paying for a year saves two months.
""",
    "billing/invoices.md": """\
# Invoices and payment

Invoices are sent by mail on the first of each month.
All of them are under Settings, Billing, Invoices as PDF files.

## Ways to pay

We take cards, SEPA direct debit and, for yearly plans, bank transfer.
A failed payment is tried again after three, five and seven days.
After the third failure the workspace becomes read-only until it is paid.

## Refunds

Yearly plans are refunded in full within fourteen days.
Monthly plans are not refunded, but you can stop at any time.

## VAT

Enter a VAT number before paying and the tax is left out for companies in other EU countries.
""",
    "notes/sync.md": """\
# Synchronisation

Changes reach your other devices within seconds when both are online.
Offline changes are kept on the device and sent as soon as there is a network.

## Conflicts

When two devices change the same paragraph, both versions are kept.
The newer one stays in the note and the older one goes to a conflict copy.
Conflict copies are in the folder named Conflicts and are never deleted by us.

## Limits

An attachment may have up to one hundred megabytes.
The desktop app syncs at most fifty thousand notes for each workspace.

## When it hangs

Sign out and in again: this rebuilds the index and loses nothing.
The log is under Help, Show sync log.
""",
    "notes/sharing.md": """\
# Sharing

Any note can be shared with a link: Share, Create link.
Links can be limited to readers who sign in, and they can expire.
A link that has expired shows an empty page, not the note.

## Working together

Up to twenty people can edit a note at the same time.
Comments are visible to everybody who can edit.
Mention somebody with @ and they get a mail.

## Publishing

A folder can be published as a small website under your own domain.
Set a CNAME record that points to pages.tidepool.example.
Certificates are made automatically and take up to an hour.
""",
    "api/overview.md": """\
# The API

Every plan but Free has access to the API.
Create a token under Settings, Developer; it is shown once.
Send it in the header Authorization: Bearer.

## Limits

Sixty requests a minute for each token, then status 429 with a Retry-After header.
A page of results has at most one hundred items; follow next_cursor for more.

## Webhooks

A webhook is called for note.created, note.updated and note.deleted.
Answer with 2xx within ten seconds, else it is tried again up to eight times.
Each call is signed: compare the header X-Tidepool-Signature with the HMAC of the body.

## Errors

Errors are JSON with code, message and request_id.
Give the request_id to support and they find the call in the log.
""",
}


@dataclass(frozen=True)
class Question:
    """A golden query of the demo. `line`: text of the line that answers it; None: it should be refused."""

    id: str
    text: str
    line: str | None
    document: str | None
    must_contain: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    category: str = ""
    difficulty: str = "easy"
    group: str | None = None
    tags: tuple[str, ...] = ()


def _q(identity: str, text: str, document: str, line: str, must: str, **more: object) -> Question:
    category = document.split("/", maxsplit=1)[0]
    return Question(identity, text, line, document, (must,), category=category, **more)  # type: ignore[arg-type]


QUESTIONS = (
    _q(
        "g001",
        "How long is my account locked after wrong passwords?",
        "account/sign-in.md",
        "After five wrong passwords",
        "fifteen minutes",
        group="locked",
        tags=("password",),
    ),
    _q(
        "g002",
        "I typed the wrong password too often, when can I sign in again?",
        "account/sign-in.md",
        "After five wrong passwords",
        "fifteen minutes",
        group="locked",
        difficulty="hard",
        tags=("password",),
    ),
    _q(
        "g003",
        "Which plan has single sign-on with SAML?",
        "account/sign-in.md",
        "Single sign-on with SAML",
        "Team",
        tags=("sso", "plans"),
    ),
    _q(
        "g004",
        "I lost my phone and the recovery codes",
        "account/sign-in.md",
        "Lost the phone",
        "invoice",
        tags=("two-factor",),
    ),
    _q(
        "g005",
        "Can I restore a deleted account?",
        "account/delete.md",
        "Deleted accounts can be restored",
        "thirty days",
        tags=("deletion",),
    ),
    _q("g006", "What is in the export?", "account/delete.md", "The export is one ZIP", "Markdown", tags=("export",)),
    _q(
        "g007",
        "How long do backups hold my notes?",
        "account/delete.md",
        "Backups that still hold",
        "ninety days",
        difficulty="hard",
        tags=("deletion",),
    ),
    _q(
        "g008",
        "What does the Team plan cost?",
        "billing/plans.md",
        "The Team plan costs",
        "nine euros",
        tags=("plans",),
    ),
    _q(
        "g009",
        "How many notes does the Free plan have?",
        "billing/plans.md",
        "The Free plan has",
        "two hundred",
        tags=("plans",),
    ),
    _q(
        "g010",
        "What happens to my notes after a downgrade?",
        "billing/plans.md",
        "Nothing is deleted after a downgrade",
        "read-only",
        difficulty="hard",
        tags=("plans",),
    ),
    _q(
        "g011", "Is there a discount for schools?", "billing/plans.md", "Schools and charities", "half", tags=("plans",)
    ),
    _q(
        "g012",
        "Can I get a refund for a yearly plan?",
        "billing/invoices.md",
        "Yearly plans are refunded",
        "fourteen days",
        tags=("refund",),
    ),
    _q(
        "g013",
        "Where do I find my invoices as PDF?",
        "billing/invoices.md",
        "All of them are under Settings",
        "Billing",
        tags=("invoices",),
    ),
    _q(
        "g014",
        "My card was declined, what happens next?",
        "billing/invoices.md",
        "A failed payment is tried again",
        "three, five and seven",
        difficulty="hard",
        tags=("payment",),
    ),
    _q(
        "g015",
        "How is VAT left out for EU companies?",
        "billing/invoices.md",
        "Enter a VAT number",
        "VAT number",
        tags=("invoices",),
    ),
    _q(
        "g016",
        "What happens when two devices change the same paragraph?",
        "notes/sync.md",
        "When two devices change",
        "both versions are kept",
        tags=("conflicts",),
    ),
    _q(
        "g017",
        "Where are conflict copies?",
        "notes/sync.md",
        "Conflict copies are in the folder",
        "Conflicts",
        tags=("conflicts",),
    ),
    _q(
        "g018",
        "How large may an attachment be?",
        "notes/sync.md",
        "An attachment may have",
        "one hundred megabytes",
        tags=("limits",),
    ),
    _q(
        "g019",
        "How many people can edit a note together?",
        "notes/sharing.md",
        "Up to twenty people",
        "twenty",
        tags=("limits",),
    ),
    _q(
        "g020",
        "How do I publish a folder under my own domain?",
        "notes/sharing.md",
        "Set a CNAME record",
        "CNAME",
        difficulty="hard",
        tags=("publishing",),
    ),
    _q(
        "g021",
        "What is the rate limit of the API?",
        "api/overview.md",
        "Sixty requests a minute",
        "Sixty requests",
        tags=("limits",),
    ),
    _q(
        "g022",
        "How often is a webhook tried again?",
        "api/overview.md",
        "Answer with 2xx",
        "eight times",
        tags=("webhooks",),
    ),
    Question("g023", "Do you have an office in Lisbon?", None, None, category="other", difficulty="hard"),
    Question("g024", "Which chess engine is the strongest?", None, None, category="other"),
    Question("g025", "Can I pay with cheques from the moon colony?", None, None, category="other", difficulty="hard"),
)
