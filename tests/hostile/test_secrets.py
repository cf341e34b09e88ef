"""Credentials: found anywhere in a file, and masked in every output."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cfglint_train.foundation.credentials import PLACEHOLDER, find_credentials, is_secret, mask, shorten
from cfglint_train.judging import dispatch
from cfglint_train.judging.options import LintOptions
from cfglint_train.judging.result import Result
from cfglint_train.reports.escape import escape_data, escape_text
from cfglint_train.runs.workspace import Workspace
from cfglint_train.settings.settings import FORMATS
from tests.support.cases import for_each
from tests.support.command import Outcome, run_cfglint
from tests.support.configs import AXOLOTL
from tests.support.corpus import REPOSITORY, SHARED

ALNUM = string.ascii_letters + string.digits


def draw_token(prefix: str, characters: str, length: int) -> st.SearchStrategy[str]:
    return st.text(characters, min_size=length, max_size=length).map(lambda text: prefix + text)


def draw_mixed(length: int, characters: str = ALNUM) -> st.SearchStrategy[str]:
    """Draw letters and digits, mixed as in generated values."""
    return st.text(characters, min_size=length - 10, max_size=length - 10).map(lambda text: "a1b2c3d4e5" + text)


UPPER = string.ascii_uppercase + string.digits
HEX = st.text("0123456789abcdef", min_size=40, max_size=40)
# The text around a token, with the token as {}, and the token's pattern.
SHAPES = {
    "Hugging Face": ("# {}", draw_token("hf_", ALNUM, 34)),
    "GitHub, classic": ("# {}", draw_token("ghp_", ALNUM, 36)),
    "GitHub, of an app": ("# {}", draw_token("ghs_", ALNUM, 36)),
    "GitHub, fine-grained": ("# {}", draw_token("github_pat_", ALNUM + "_", 82)),
    "GitLab": ("# {}", draw_token("glpat-", ALNUM, 20)),
    "OpenAI": ("# {}", draw_token("sk-proj-", ALNUM, 48)),
    "Anthropic": ("# {}", draw_token("sk-ant-", ALNUM, 40)),
    "AWS, key": ("# {}", draw_token("AKIA", string.ascii_uppercase + string.digits, 16)),
    "AWS, session": ("# {}", draw_token("ASIA", string.ascii_uppercase + string.digits, 16)),
    "AWS, secret": ("export AWS_SECRET_ACCESS_KEY={}", draw_token("aB", ALNUM + "+/", 38)),
    "Slack": ("# {}", draw_token("xoxb-", ALNUM, 30)),
    "Google": ("# {}", draw_token("AIza", ALNUM, 35)),
    "npm": ("# {}", draw_token("npm_", ALNUM, 36)),
    "PyPI": ("# {}", draw_token("pypi-", ALNUM, 60)),
    "W&B, new": ("# {}", draw_token("wandb_v1_", ALNUM, 40)),
    "W&B, login": ("wandb login --relogin {}", HEX),
    "W&B, flag": ("  --use_wandb {} \\", HEX),
    "W&B, key": ("wandb_key: {}", HEX),
    "address": ("pip install git+https://me:{}@git.corp/x", draw_mixed(16)),
    "named": ("comet_api_key: {}", draw_mixed(32)),
    "Slack, webhook": ("url: https://hooks.slack.com/services/{}", draw_token("T0123456/B0123456/", ALNUM, 24)),
    "Discord, webhook": ("https://discord.com/api/webhooks/123456789012345678/{}", draw_token("", ALNUM + "_-", 68)),
    "Azure, signed address": ("https://a.blob.core.windows.net/c?sv=2022-11-02&sig={}", draw_mixed(43)),
    "Azure, account key": ("AccountName=a;AccountKey={};EndpointSuffix=core.windows.net", draw_mixed(86)),
    "Modal": ("# {}", draw_mixed(22).map(lambda text: "as-A" + text[1:])),
    "Docker": ("# {}", draw_token("dckr_pat_", ALNUM + "_-", 27)),
    "Telegram": ("https://api.telegram.org/bot{}/send", draw_token("1234567890:AA", ALNUM + "_-", 33)),
    "DigitalOcean": ("# {}", draw_token("dop_v1_", "0123456789abcdef", 64)),
    "Stripe-like, of the list": ("# {}", draw_token("glsa_", ALNUM, 32).map(lambda text: text + "_0a1b2c3d")),
    "password": ("export MLFLOW_TRACKING_PASSWORD={}", draw_token("", ALNUM, 16)),
    "password, JSON": ('"db_password": "{}",', draw_token("", ALNUM + "!@#%^*", 12)),
    "secret": ("MODAL_TOKEN_SECRET: {}", draw_token("A1", ALNUM, 22)),
    "token, flag": ("  --tracking_token {} \\", draw_mixed(32)),
}


@st.composite
def draw_line_and_token(draw) -> tuple[str, str]:
    context, shape = draw(st.sampled_from(sorted(SHAPES.items())))[1]
    token = draw(shape.filter(lambda text: re.search(PLACEHOLDER, text) is None and "/-" not in f"/{text}"))
    return context.replace("{}", token), token


@settings(max_examples=400, deadline=None)
@given(draw_line_and_token(), st.text("ab :\n#", max_size=10), st.text(" \n", min_size=1, max_size=5))
def test_a_token_is_masked_wherever_it_stands(drawn: tuple[str, str], before: str, after: str) -> None:
    line, token = drawn
    text = f"{before}\n{line}{after}"
    shown = mask(text)
    assert token not in shown
    assert len(shown) == len(text)
    assert shown.replace("*", "") in text.replace(token, "") or "*" in text


@pytest.mark.parametrize(
    "line",
    [
        "aws_secret_access_key: {}",
        'export AWS_SECRET_ACCESS_KEY="{}"',
        '"secretAccessKey": "{}",',
        "aws configure set aws_secret_access_key {}",
    ],
)
@pytest.mark.parametrize("digits", ["", "1", "123"])
def test_a_secret_of_aws_needs_no_digits(line: str, digits: str) -> None:
    secret = (digits + "wJalrXUtnFEMIKMDENGbPxRfiCYzKQpLmNvBsTgHd")[:40]
    assert mask(line.format(secret)) == line.format("*" * 40)


def test_every_shape_of_the_list_is_one_of_a_token() -> None:
    listed = json.loads((REPOSITORY / "lint/cfglint_train/foundation/token_shapes.json").read_text())
    assert len(listed["shapes"]) > 100
    assert listed["licence"] == "MIT"
    for prefix, pattern in listed["shapes"].items():
        token = st.from_regex(re.compile(pattern, re.A), fullmatch=True).filter(lambda text: "xxxx" not in text)
        example = draw_once(token)
        assert example.lower().startswith(prefix)
        assert mask(f"# {example} #") == f"# {'*' * len(example)} #"
        assert mask(f"a{prefix}") == f"a{prefix}"


def draw_once(strategy: st.SearchStrategy[str]) -> str:
    texts: list[str] = []

    @settings(max_examples=1, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def draw(text: str) -> None:
        texts.append(text)

    draw()
    return texts[0]


CHOSEN = "Tr0ub4dor-staple"


@for_each(
    "line",
    [
        "MLFLOW_TRACKING_PASSWORD={}",
        "export DB_PASSWORD='{}'",
        'export DB_PASSWD="{}" OTHER=1',
        "DB_PASSWORD={} python train.py",
        "db_password: {}",
        "db_password: {}  # of the tracker",
        '  "dbPassword": "{}",',
        '{{"password":"{}"}}',
        "db_password = '{}'",
        "--db-password {} --other 1",
        "--db-password={} --other 1",
        "https://host/?password={}&x=1",
        "CLIENT_SECRET: {}",
        "--client_secret {}",
        r'echo "\"password\": \"{}\""',
    ],
)
def test_the_value_of_a_key_that_says_what_it_is(line: str) -> None:
    assert mask(line.format(CHOSEN)) == line.format("*" * len(CHOSEN))


@for_each(
    "text",
    [
        "# OpenRLHF at commit 9c2e61f0b7d84a35e1f6720c8d9ab34f51e07d62",
        "pip install git+https://github.com/wandb/wandb@9c2e61f0b7d84a35e1f6720c8d9ab34f51e07d62",
        "export WANDB_API_KEY=$(cat ~/.wandb)",
        "export HF_TOKEN=${HF_TOKEN:?}",
        "api_key: <your-api-key-goes-here-1234>",
        "password: changeme_changeme_changeme1",
        "--data.input_key prompt --data.output_key a_key_of_the_records_2024",
        "pad_token: <|reserved_special_token_250|>",
        "https://user:password@example.com",
        "aws_secret_access_key: aGitCommitOrAWordThatIsNoSecretOfAwsAtAllSinceItIsLonger",
        "aws_secret_access_key: /run/secrets/aws/training/cluster/keyfil",
        "aws_secret_access_key: wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "token_path: /home/me/tokens/a1b2c3d4e5f6g7h8i9",
        "secret: s3://bucket/some/long/path/2024/01/02/x1.json",
        'pad_token: "<pad>"',
        "pad_token: reserved_special_token_250",
        "image_token: IMG_CONTEXT_TOKEN",
        "eos_token: <|im_end|>",
        "boi_token: '[BEGIN_OF_IMAGE]'",
        "special_tokens: {additional: [a1b2c3d4e5f6g7h8]}",
        "max_tokens: 100000000000000000",
        "tokenizer_name: meta-llama/Llama-3.1-8B-Instruct",
        "--tokenizer Qwen2.5-7B-Instruct-1M-v3",
        "token: Qwen2.5-7B-Instruct-GPTQ",
        "use_auth_token: true",
        "hub_token: null",
        "hub_token: ${{ secrets.HF_TOKEN }}",
        "export HF_TOKEN=$HF_TOKEN_OF_THE_TEAM",
        'password = os.environ["MLFLOW_PASSWORD"]',
        "password = args.tracking_password",
        "password=get_password()",
        "password: ${oc.env:DB_PASSWORD}",
        "password: MLFLOW_TRACKING_PASSWORD",
        "password: <your password>",
        "password: /run/secrets/password",
        "db_password: vault:secret/data/db",
        "gantry run --env-secret HF_TOKEN=HF_TOKEN --env-secret WANDB_API_KEY=jacob_WANDB_API_KEY",
        "gantry run --env-secret R2_ACCESS_KEY_ID=R2_ACCESS_KEY_ID --env-secret AWS_SECRET_ACCESS_KEY=R2_SECRET_KEY",
        "# password: required by the server",
        "# the password protects it",
        "# token: see the documentation of a1b2c3",
        "imagePullSecret: registry-credentials-2",
        "hf_secret: huggingface-secret",
        "secret_key_ref: a",
        "key: 123456789012345678901234567890",
        "cache_key: 0123abcd0123abcd0123abcd0123abcd",
        "as-is, as-wellAsWhatIsSaid",
        "signal=0123456789abcdef0123456789abcdef",
        "2024:AA is no bot",
    ],
)
def test_what_is_no_credential_is_left_alone(text: str) -> None:
    assert list(find_credentials(text)) == []


UNMASKED = [
    "x: sk-learn-something-long-name-with-many-words-in-it",
    "run_name: sk-qwen2-5-0-5b-instruct-sft-lora-2024-11-28",
    "run_name: sk-proj-llama3-8b-lora-r16-a32-lr1e-4-bs64-seq4096",
    "x: pypi-package-name-with-many-parts-that-is-really-long-for-a-name-abc",
    "x: xoxo-1234-this-is-not-a-slack-token-at-all",
    "x: dckr_img_something-that-is-long-enough",
    "x: glpat-pattern-name-of-a-glyph",
    "x: nvapi-compatible-endpoint-for-inference-of-llama-models-v2",
    "x: github_pat_based_authentication_for_private_repositories_is_used",
    "x: s3://bucket:v1/a@b",
    "x: http://localhost:8080/a@b",
    "x: git+ssh://git@github.com:org/repo@main",
    "# the bearer token is in the environment",
    "forward_pass: activation_checkpointing",
    "n_pass: 1234567890",
]


@for_each("text", UNMASKED)
def test_words_behind_a_prefix_are_no_credential(text: str) -> None:
    assert list(find_credentials(text)) == []


@for_each(
    ("key", "value"),
    [
        ("gcp_secret", "projects/p/secrets/s/versions/1"),
        ("y_secret", "my/vault/path"),
        ("x_secret", "Name-Of-Secret"),
        ("hub_password", "%(PW)s-abcdef"),
        ("g_password", "prompt_user"),
        ("a_password", "getpass.getpass()"),
        ("b_password", 'os.environ["PW"]'),
        ("c_password", "${{ secrets.PW }}"),
        ("d_password", "$(cat f) "),
        ("e_password", "{{ password }}"),
        ("f_password", "<the password>"),
        ("h_password", "$MLFLOW_PASSWORD"),
        ("i_password", "asked for at the start"),
        ("two_pass", "sequential"),
        ("pad_token", "<|reserved_special_token_250|>"),
    ],
)
def test_what_stands_for_a_secret_is_none(key: str, value: str) -> None:
    assert not is_secret(key, value)


ONE, OTHER = "kQ7vRt2Zx", "bN4wLp9Ym"
WHOLE = {  # the value of the key, in YAML
    **{
        repr(sign): f"'{ONE}{sign}{OTHER}'"
        for sign in ("$", "{", "<", " ", ",", "&", "|", "%", '"', "\\", "''", "é", "your")
    },
    "plain, comma": f"{ONE},{OTHER}",
    "plain, parentheses": f"{ONE}({OTHER})",
    "plain, and": f"{ONE}&{OTHER}",
    "plain, bar": f"{ONE}|{OTHER}",
    "double": f'"{ONE},{OTHER}"',
    "escaped": f'"{ONE}\\"{OTHER}"',
    "tagged": f"!!str {ONE}{OTHER}",
    "block": f"|\n  {ONE}{OTHER}",
    "next line": f"\n  {ONE}{OTHER}",
    "private key": f'"-----BEGIN PRIVATE KEY-----\\n{ONE}/+\\n{OTHER}\\n-----END PRIVATE KEY-----"',
}
ELSEWHERE = {
    "pass": f"DB_PASS: '{ONE}{OTHER}'",
    "variable of a list": f"env: [{{name: DB_PASSWORD, value: {ONE}{OTHER}}}]",
    "bearer": f"headers: 'Authorization: Bearer {ONE}{OTHER}{ONE}'",
    "user": f"x: https://{ONE}{OTHER}{ONE}@host.org/p",
    **{f"address, {sign}": f"x: postgres://u:{ONE}{sign}{OTHER}@host/db" for sign in ("/", "@", "$", "<")},
    "x in the middle": f"x: hf_{ONE}xxxx{OTHER}{ONE}",
}


@pytest.mark.parametrize("form", FORMATS)
def test_a_credential_is_masked_from_end_to_end(tmp_path: Path, form: str) -> None:
    texts = [*(f"X_PASSWORD: {value}" for value in WHOLE.values()), *ELSEWHERE.values()]
    (tmp_path / ".git").mkdir()
    for number, text in enumerate(texts):
        (tmp_path / f"f{number}.yaml").write_text(f"{AXOLOTL}{text}\n", encoding="utf-8")
    outcome = run_cfglint("--output-format", form, ".", cwd=tmp_path)
    assert outcome.code == 1
    assert [part for part in (ONE, OTHER) if part in outcome.out + outcome.err] == []
    if form == "concise":
        assert outcome.out.count("SEC002") >= len(texts)


@settings(max_examples=200, deadline=None)
@given(draw_line_and_token(), st.integers(10, 60))
def test_what_is_shortened_is_masked_before(drawn: tuple[str, str], most: int) -> None:
    line, token = drawn
    for offset in range(most + 2):
        shown = shorten(f"{'z' * offset} {line} {'y' * most}", most)
        assert len(shown) == most
        assert not any(
            token[at : at + 6] in shown
            for at in range(4, len(token) - 5)
            if token[at : at + 6] not in line.replace(token, "", 1)
        )


@pytest.mark.parametrize("form", FORMATS)
def test_no_offset_of_a_cut_shows_a_credential(tmp_path: Path, form: str) -> None:
    secret = "Wq7zk2Vt9Lp4Xb3Nm6Qr"
    values = [f"{'z' * offset} mysql://trainer:{secret}@db.internal/x" for offset in range(40)]
    (tmp_path / ".git").mkdir()
    for number, value in enumerate((*values, f"{secret}, {secret}'", *(f"{'z ' * n}{TOKEN}" for n in range(20)))):
        (tmp_path / f"f{number}.yaml").write_text(
            f"{AXOLOTL}fsdp: {json.dumps(value)}\nX_PASSWORD: {json.dumps(secret * 3)}\n"
        )
    outcome = run_cfglint("--output-format", form, "--select", "KEY004,SEC002", ".", cwd=tmp_path)
    assert outcome.code == 1
    shown = outcome.out + outcome.err
    assert [
        part for whole in (secret, TOKEN[3:]) for at in range(len(whole) - 5) if (part := whole[at : at + 6]) in shown
    ] == []


def test_no_ordinary_file_holds_a_credential() -> None:
    """Find credentials in the cases of the rule only."""
    folders = (REPOSITORY / "fixtures", SHARED / "corpus")
    files = [
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in (".yaml", ".yml", ".json", ".sh", ".py")
    ]
    matches = [path.as_posix() for path in files if any(find_credentials(path.read_bytes().decode("latin-1")))]
    assert len(files) > 100
    assert [path for path in matches if "/SEC002/" not in path and "/wandb-key-" not in path] == []


def test_bytes_of_a_name_are_escaped_as_bytes() -> None:
    assert escape_text("bad\udcff.yaml") == r"bad\xff.yaml"
    assert escape_data("\ud800") == r"\ud800"


SECRETS = {  # key -> its value, and the part that must never be printed; none has the form of a real credential
    "slack_webhok": ("https://hooks.slack.com/services/{}", "T01234567/B01234567/" + "aB3" * 8),
    "discord_webhok": ("https://discord.com/api/webhooks/123456789012345678/{}", "aB3_" * 17),
    "store_adress": ("https://acct.blob.core.windows.net/c?sv=2022-11-02&sig={}", "aB3" * 14 + "x%3D"),
    "store_conection": ("AccountName=acct;AccountKey={};EndpointSuffix=core.windows.net", "aB3+" * 21 + "Cd=="),
    "modal_scret": ("{}", "as-" + "aB3" * 7 + "x"),
    "registry_tokn": ("{}", "dckr_pat_" + "aB3" * 9),
    "telegram_bt": ("{}", "1234567890:AA" + "aB3" * 11),
    "MLFLOW_TRACKING_PASSWORD": ("{}", CHOSEN),
    "MODAL_TOKEN_SECRET": ("{}", "aB3x" * 6),
}
TOKEN = "hf_" + "aB3" * 12
KEY = "c41f9be2075d3a68f1e07b92d4c6853a0be7f914"


@pytest.mark.parametrize("form", FORMATS)
def test_no_format_shows_a_token(tmp_path: Path, form: str) -> None:
    (tmp_path / "a.yaml").write_text(
        AXOLOTL + f"hub_tokenn: {TOKEN}\nwandb_keyy: x{TOKEN}\nwandb_key: {KEY}\n# {TOKEN}\n"
    )
    (tmp_path / f"{TOKEN}.yaml").write_text(AXOLOTL + "lora_rr: 8\n")
    outcome = run_cfglint("--output-format", form, cwd=tmp_path)
    assert outcome.code == 1
    for secret in (TOKEN, KEY):
        assert secret not in outcome.out + outcome.err
        assert secret[:16] not in outcome.out + outcome.err


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Write a configuration and a script with every secret next to misspelt keys."""
    settings = "".join(f'{key}: "{value.format(secret)}"\n' for key, (value, secret) in SECRETS.items())
    (tmp_path / ".git").mkdir()
    (tmp_path / "a.yaml").write_text(AXOLOTL.replace("micro_batch_size", "micro_batch_siz") + settings)
    script = "".join(
        f'export {key.upper()}="{value.format(secret)}"\n'
        "deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-0.5B --dataset d "
        f'--micro_train_batch_siz 1 --{key.lower()} "{value.format(secret)}"\n'
        for key, (value, secret) in SECRETS.items()
    )
    (tmp_path / "a.sh").write_text(f"#!/bin/bash\n{script}")
    return tmp_path


@pytest.fixture
def shown_nowhere(written: Path) -> Callable[[Outcome], None]:
    """Return a check that fails if an output shows one of the secrets of those files."""

    def check(outcome: Outcome) -> None:
        assert [key for key, (_, secret) in SECRETS.items() if secret in outcome.out + outcome.err] == []

    return check


@pytest.fixture
def linted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share one lint between the commands of a test; reports with a digest of each run get a second."""
    lint, results = dispatch.lint, {}

    def lint_once(workspace: Workspace, paths: Iterable[str], options: LintOptions) -> Result:
        kind = options.digest
        if kind not in results:
            results[kind] = lint(workspace, paths, options)
        return results[kind]

    monkeypatch.setattr(dispatch, "lint", lint_once)


@for_each("form", FORMATS)
def test_no_format_shows_a_secret(form: str, written: Path, shown_nowhere, linted_once) -> None:
    outcome = run_cfglint("--output-format", form, ".", cwd=written)
    assert outcome.code == 1
    shown_nowhere(outcome)


@pytest.mark.parametrize(
    "words",
    [
        ("--diff", "--unsafe-fixes", "."),
        ("--explain-origins", "."),
        ("--explain-origins", "--output-format", "json", "."),
        ("--show-files", "--verbose", "."),
        ("--select", "SEC002", "."),
        ("--gpu", SECRETS["registry_tokn"][1], "."),
        ("estimate", "a.yaml"),
        ("estimate", "a.yaml", "--output-format", "json"),
        ("fit", "a.yaml"),
        ("migrate", "--to", "axolotl=0.21.0", "--diff", "."),
        ("init",),
    ],
)
def test_no_command_shows_a_secret(tmp_path: Path, words: tuple[str, ...], shown_nowhere) -> None:
    shown_nowhere(run_cfglint(*words, cwd=tmp_path))


def test_every_secret_is_reported(tmp_path: Path, shown_nowhere) -> None:
    outcome = run_cfglint("--select", "SEC002", "--output-format", "concise", "a.yaml", cwd=tmp_path)
    reported = {int(line.split(":")[1]) for line in outcome.out.splitlines() if "SEC002" in line}
    first = len(AXOLOTL.splitlines()) + 1
    assert reported == set(range(first, first + len(SECRETS)))


@pytest.mark.parametrize("form", ["text", "concise", "html", "json", "sarif", "markdown"])
@pytest.mark.parametrize(
    "parts",
    [
        (TOKEN[:20], TOKEN[20:]),
        (TOKEN[:36], TOKEN[36:]),  # the first line alone has the pattern
        (TOKEN[:9], TOKEN[9:15], TOKEN[15:]),
    ],
)
def test_a_token_over_several_lines(tmp_path: Path, form: str, parts: tuple[str, ...]) -> None:
    (tmp_path / "a.yaml").write_text(AXOLOTL + 'hub_model_idd: "' + "\\\n  ".join(parts) + '"\n')
    outcome = run_cfglint("--select", "SEC,KEY001", "--output-format", form, cwd=tmp_path)
    assert outcome.out.count("SEC002") >= 1
    shown = outcome.out + outcome.err
    assert [part for part in parts if part in shown] == []


def test_a_token_with_an_escape(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(AXOLOTL + f'hub_model_id: "\\x68{TOKEN[1:]}"\n')
    outcome = run_cfglint("--select", "SEC", cwd=tmp_path)
    assert "a.yaml:10:15: error SEC002" in outcome.out
    assert TOKEN[5:] not in outcome.out


def test_an_escape_beside_a_token_moves_no_finding(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(AXOLOTL + f'hub_model_id: "a\\tb {TOKEN}"\n')
    outcome = run_cfglint("--select", "SEC", "--output-format", "concise", cwd=tmp_path)
    assert "a.yaml:10:21:" in outcome.out


@pytest.mark.parametrize(
    "words",
    [
        ("--diff",),
        ("--fix",),
        ("--show-files",),
        ("--explain-origins",),
        ("--verbose",),
        ("estimate",),
        ("--gpu", TOKEN),
        ("--select", TOKEN),
        (TOKEN,),
    ],
)
def test_no_command_shows_a_token(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "a.yaml").write_text(f"# {TOKEN}\n" + AXOLOTL + f"hub_model_id: {TOKEN}\ntrust_remote_codee: true\n")
    outcome = run_cfglint(*words, cwd=tmp_path)
    assert TOKEN not in outcome.out + outcome.err


@pytest.mark.parametrize(
    "text", [f'select = ["{TOKEN}"]\n', f"{TOKEN} = 1\n", f'fix = "{TOKEN}"\n', f'extend = "{TOKEN}"\n']
)
def test_a_complaint_about_settings_shows_no_token(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(AXOLOTL)
    (tmp_path / "cfglint.toml").write_text(text)
    outcome = run_cfglint(cwd=tmp_path)
    assert outcome.code == 2
    assert TOKEN not in outcome.out + outcome.err
