"""The one filter for secrets: what must not be in a manifest, a log, a report.

In:   names and values, command lines, nested configurations, the text of a git diff.
Out:  the same with `****` where a password, a key or a token was, and how many there were.

A value is a secret by its name (`wandb_api_key`, `--password`), by its form (`hf_…`, `sk-…`, an address with a
password in it), or as a long random word under a name that hints at one. `max_tokens`, `tokenizer`, `pad_token_id`
and the like stay readable.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from barograph.core.patterns import expression

MASK = "****"

# words of a name, split at case, digits, dots, dashes and underscores
_WORDS = expression(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SURE = frozenset({
    "password", "passwd", "passphrase", "pwd", "secret", "secrets", "credential", "credentials", "jwt", "cookie",
    "cookies", "bearer", "webhook", "webhooks", "notify", "dsn", "conn", "connstr", "apikey", "authtoken", "accesskey",
    "privatekey", "secretkey",
})  # fmt: skip
_PASS = frozenset({"pass"})  # NCCL_PASS, but not forward_pass
_KEY_BEFORE = frozenset({
    "api", "access", "private", "secret", "ssh", "signing", "encryption", "encrypt", "account", "auth", "license",
    "wandb", "openai", "anthropic", "aws", "azure", "gcp", "hf", "neptune", "comet", "mlflow", "client", "storage",
})  # fmt: skip
_TOKEN_BEFORE = frozenset({
    "api", "access", "auth", "hf", "hub", "huggingface", "hugging", "face", "bot", "slack", "github", "gitlab", "git",
    "wandb", "refresh", "security", "bearer", "id", "oauth", "sas", "personal", "user", "read", "write", "upload",
    "deploy", "job", "service", "telegram", "discord", "neptune", "comet", "mlflow", "jwt", "login", "device",
    "registry", "pypi", "npm", "use",
})  # fmt: skip
_PLAIN_TOKEN = expression(r"(?:special|pad|eos|bos|unk|mask|sep|cls|image|audio|begin|end|think|stop)", re.IGNORECASE)

_FORMS = expression(
    r"(?:"
    r"hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_\-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}"
    r"|glpat-[A-Za-z0-9_\-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16}|xox[abeprs]-[A-Za-z0-9\-]{8,}|xapp-[A-Za-z0-9\-]{8,}"
    r"|AIza[A-Za-z0-9_\-]{30,}|ya29\.[A-Za-z0-9_\-]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_\-]{30,}"
    r"|dop_v1_[a-f0-9]{32,}|SG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}|[rs]k_(?:live|test)_[A-Za-z0-9]{10,}"
    r"|nvapi-[A-Za-z0-9_\-]{16,}|tgp_v1_[A-Za-z0-9_\-]{16,}|r8_[A-Za-z0-9]{20,}|gsk_[A-Za-z0-9]{20,}"
    r"|wandb_v1_[A-Za-z0-9_]{20,}|eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}"
    r"|hooks\.slack\.com/(?:services|workflows)/[^\s\"'<>]+|discord(?:app)?\.com/api/webhooks/[^\s\"'<>]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?"
    r"|[0-9]{8,10}:AA[A-Za-z0-9_\-]{32,}"  # a bot of Telegram's
    r")"
)
_IN_ADDRESS = expression(r"(?<=://)[^/@\s\"']*:[^/@\s\"']*(?=@)|(?<=://)[^/@\s\"':]{8,}(?=@)")
_IN_QUERY = expression(
    r"(?i)((?:[?&;,\s]|^)(?:password|passwd|pwd|token|access_token|api_?key|secret|sig|signature|accountkey|"
    r"sharedaccesskey)=)([^&;,\s\"']+)"
)
_NOTIFICATION = expression(
    r"(?i)\b(slack|discord|tgram|telegram|mailtos?|mmosts?|teams|msteams|pover|pbul|ntfys?|gotifys?|matrixs?|rockets?|"
    r"signals?|twilio|sendgrid|ses|sns|webex|zulip|pushover|opsgenie|pagerduty|json|xml|form)s?://[^\s\"'<>,\]]+"
)
_LONG_WORD = expression(r"[A-Za-z0-9+/_\-]{32,}={0,2}")
_LINE = expression(
    r"""(?ix) (["']?(?:[\w.\-]*?)(?:password|passwd|pwd|secret|api_?key|access_?key|private_?key|auth_?token
    |access_?token|hf_?token|bot_?token|credential|webhook)[\w.\-]*["']?\s*[:=]\s*) (["']?)([^\s"',#)]{4,})\2"""
)
_CODE = expression(r"(?:[A-Za-z_][\w.]*\s*[(\[]|os\.|None|True|False|\$\{?|args\.|config\.|cfg\.|self\.|env)")


def is_secret_name(name: str) -> bool:
    """Whether a variable, an option or a key of this name holds a secret."""
    words = [word.lower() for word in _WORDS.findall(name.rpartition("/")[2].rpartition(".")[2])]
    joined = "".join(words)
    if not words:
        return False
    if _SURE.intersection(words) or any(joined.endswith(word) for word in ("password", "secret", "apikey")):
        return True
    last = words[-1]
    if last in _PASS:
        return len(words) == 1 or name.isupper() or words[-2] in ("db", "user", "smtp", "mail", "redis")
    if last in ("key", "keys"):
        return len(words) > 1 and words[-2] in _KEY_BEFORE
    if last in ("token", "auth"):
        if _PLAIN_TOKEN.search(name):
            return False
        return len(words) == 1 or words[-2] in _TOKEN_BEFORE or name.isupper()
    return False


def masked_text(text: str) -> str:
    """A text without what looks like a secret by its form."""
    if len(text) < 8:
        return text
    text = _FORMS.sub(MASK, text)
    if "://" in text:
        text = _NOTIFICATION.sub(lambda match: match[0] if _harmless(match[0]) else f"{match[1]}://{MASK}", text)
        text = _IN_ADDRESS.sub(MASK, text)
    if "=" in text:
        text = _IN_QUERY.sub(lambda match: match[1] + MASK, text)
    return text


def _harmless(address: str) -> bool:
    return address.lower().startswith(("json://localhost", "xml://localhost", "form://localhost"))


def masked_value(name: str, value: Any) -> Any:
    """One value under its name; numbers, None and empty texts are not secrets."""
    if isinstance(value, str):
        if value and value != MASK and is_secret_name(name) and value.lower() not in ("true", "false", "none", "null"):
            return MASK
        if _hints(name) and _is_random(value):
            return MASK
        return masked_text(value)
    if isinstance(value, Mapping):
        return {key: masked_value(str(key), item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked_value(name, item) for item in value]
    return value


def masked(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """A nested configuration or an environment."""
    return {key: masked_value(str(key), value) for key, value in values.items()}


def masked_words(words: Sequence[str]) -> list[str]:
    """A command line: `--password X`, `--password=X`, `KEY=value` and addresses."""
    shown: list[str] = []
    hidden = False
    for word in words:
        name, equals, value = word.partition("=")
        is_option = word.startswith("-")
        if hidden and not is_option:
            shown.append(MASK)
            hidden = False
            continue
        hidden = False
        if equals and re.fullmatch(r"[-+]*[\w.\-/]+", name):
            shown.append(f"{name}={masked_value(name.lstrip('-+'), value)}")
            continue
        shown.append(masked_text(word))
        hidden = is_option and is_secret_name(word.lstrip("-"))
    return shown


def masked_lines(text: str) -> str:
    """A git diff or another piece of code: values given to secret names, and what has the form of one."""
    lines = []
    for line in text.split("\n"):
        shown = masked_text(line)
        if "=" in shown or ":" in shown:
            shown = _LINE.sub(_without_value, shown)
        lines.append(shown)
    return "\n".join(lines)


def _without_value(match: re.Match[str]) -> str:
    if _CODE.match(match[3]) and not match[2]:
        return match[0]
    return f"{match[1]}{match[2]}{MASK}{match[2]}"


def _hints(name: str) -> bool:
    words = {word.lower() for word in _WORDS.findall(name)}
    return bool(words & {"key", "token", "auth", "login", "account"}) and not _PLAIN_TOKEN.search(name)


def _is_random(value: str) -> bool:
    """Whether a long word is as mixed as a key: at least 3.5 bits a character, with digits and letters."""
    if not _LONG_WORD.fullmatch(value) or value.isdigit() or not any(letter.isdigit() for letter in value):
        return False
    counts = Counter(value)
    bits = -sum(count / len(value) * math.log2(count / len(value)) for count in counts.values())
    return bits >= 3.5 and "/" not in value[:2]
