"""Everything that talks to a running system: making runs, judging answers.

Shared by all of it: `sending` (HTTP with retries and typed outcomes), `limits` (how many requests at
once, and how fast), `working` (many jobs at once, Ctrl-C), `progress` (what is shown meanwhile) and `environment`
(secrets from environment variables, and how they are kept out of everything that is stored or shown).
"""
