"""Attacks on a whole command: each is handled within the limits, at its place in the file, and leaks no secret.

They complement the recorded inputs (`test_inputs.py`); each is as small as its kind allows, or large enough to hurt.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cfglint_train.settings.settings import FORMATS
from tests.hostile.test_forging import find_forged_commands
from tests.hostile.test_inputs import check_handled
from tests.support.command import run_cfglint
from tests.support.configs import AXOLOTL, DEEPSPEED
from tests.support.hostile import find_control_characters
from tests.support.limited import run_limited

pytestmark = pytest.mark.slow

SFT = "deepspeed --module openrlhf.cli.train_sft --pretrain Qwen/Qwen2.5-0.5B --dataset d --max_len 2048 "
TOKEN = "hf_" + "aB3dE5" * 6
HEX = "c41f9be2075d3a68f1e07b92d4c6853a0be7f914"
ADDRESS = "https://bob:S3cr3tP4ssw0rd99@example.org"
LONGEST = 100_000
"""Maximum length of an answer in characters, however long a key or value is."""


def build_yaml(text: str) -> dict[str, str]:
    return {"a.yaml": AXOLOTL + text}


def build_json(text: str) -> dict[str, str]:
    return {"ds.json": DEEPSPEED.rstrip().rstrip("}").rstrip() + f",\n{text}\n}}\n"}


def build_script(text: str) -> dict[str, str]:
    return {"run.sh": text}


def build_settings(text: str) -> dict[str, str]:
    return {"a.yaml": AXOLOTL, "cfglint.toml": text}


def build_long_requirements(name: str, line: str, last: str = "") -> dict[str, str]:
    """Return a config and a requirement file of the maximum size."""
    return {**build_yaml(""), name: line * ((4 * 2**20 - len(last)) // len(line)) + last}


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
MERGES = "m0: &m0 {k: 1}\n" + "".join(
    f"m{n}: &m{n}\n  <<: [{', '.join(f'*m{below}' for below in range(max(0, n - 9), n))}]\n" for n in range(1, 300)
)
PINNED = {"requirements.txt": "axolotl==0.21.0\n"}
CLONE = '[[package]]\nname = "axolotl"\nversion = "0.8.0"\n'

# Files of the repository, exit code (None: any of the three), and a text in the output.
ATTACKS: Mapping[str, tuple[Mapping[str, str], int | None, str]] = {
    "an alias bomb as a value": (
        build_yaml(BOMB + "lora_target_modules: *a11\n"), 2, "error SYN008 expands to more than",
    ),
    "merges of merges": (build_yaml(MERGES), 2, "error SYN008 expands to more than"),
    "a merge with itself": (build_yaml("<<: &r\n  <<: *r\n"), 2, "an alias is inside its own anchor"),
    "one key in every spelling": (
        build_yaml("x: 1\n'x': 2\n\"x\": 3\n? x\n: 4\ny: {z: 1, 'z': 2, ? z : 3}\n"), 1, "SYN003",
    ),
    "ends of lines that are none": (build_yaml("x: a\u2028lora_rr: 4\ny: b\x85lora_rr: 8\nz: "
                                               "\"\u2029\"\n"), 1, "KEY001"),
    "three ends of lines": ({"a.yaml": "\ufeff" + AXOLOTL.replace("\n", "\r\n") + "# x\rlora_rr: 4\r\n"}, 1, "lora_rr"),
    "a mark of order inside": (build_yaml("\ufefflora_rr: 8\n"), 1, "axolotl has no `\\ufefflora_rr`"),
    "a number of four million digits": (
        build_yaml("lora_rr: " + "9" * 4_000_000 + "\n"), 2, "SYN008 more than 512 KiB",
    ),
    "a key of three million letters": (build_yaml("? " + "k" * 3_000_000 + "\n: 1\n"), 2, "SYN008 more than 512 KiB"),
    "a long number in every base": (
        build_yaml(f"a: {':'.join(['59'] * 5000)}\nb: 0b{'1' * 20000}\nc: 1e{'9' * 900}\n"), 1, "",
    ),
    "days that are none": (build_yaml("x: 9999-99-99\nsequence_len: 2001-12-14t21:59:43.1-99:99\n"), 1, ""),
    "tags of everything": (
        build_yaml("x: !!int abc\ny: !!binary '%'\nz: !!omap [a: 1]\nw: !!python/name:os.system x\n"), 1, "",
    ),
    "lists and keys of anything": (
        build_yaml("fsdp: [{a: 1}, [b]]\nfsdp_config: {1: 2, ~: 3}\nlora_target_modules: [{a: 1}]\n") | PINNED, 1, "",
    ),
    "fsdp options of anything": (build_yaml("fsdp: [full_shard]\nfsdp_config: {1: 2, ~: 3}\n") | PINNED, 1, ""),
    "directives": ({"a.yaml": f"%YAML 9.9\n%FOO bar\n--- !x\n{AXOLOTL}"}, 2, "error SYN002"),
    "documents without end": ({"a.yaml": f"---\n{AXOLOTL}" * 3000}, 2, "a second document starts here"),
    "a sequence of sequences": (build_yaml("x:\n  " + "- " * 100_000 + "a\n"), 2, "nested deeper than 100 levels"),
    "objects in lists in objects": (build_json('"x": ' + '{"a": [' * 30_000 + "]}" * 30_000), 2, "SYN008"),
    "lists that never end": ({"ds.json": '{"train_batch_size": 8, "x": ' + "[" * 200_000}, 2, "SYN008"),
    "numbers that are none": (build_json('"a": 1e999999, "b": -0, "c": NaN, "d": ' + "9" * 5000), 1, "ds.json:"),
    "half a character as a key": (build_json('"\\ud800": 1, "a\\u0000\\u001b[2J": "\\udfff"'), 1, "ds.json:"),
    "a here-document without end": (
        build_script(f"{SFT}<<EOF\n$(touch pwned)\n" + "EOFx\n" * 50_000), 2, "20,000 lines",
    ),
    "substitutions in substitutions": (
        build_script("x=" + "$(" * 5000 + "id" + ")" * 5000 + f"\n{SFT}$x\n"), 2, "SYN008",
    ),
    "loops in loops": (
        build_script("for i in 1 2; do\n" * 400 + SFT + "\n" + "done\n" * 400), 2, "SYN008 nested deeper",
    ),
    "braces": (build_script(f"{SFT}{{1..1000000000}} {'{a,b}' * 40}\n"), None, "run.sh:"),
    "a list that doubles": (
        build_script(f"a=({'x ' * 9999})\n" + 'a+=("${a[@]}")\n' * 40 + f'{SFT}"${{a[@]}}"\n'), None, "",
    ),
    "a text that doubles": (build_script("x=aaaaaaaaaa\n" + "x=$x$x\n" * 60 + f"{SFT}--seed $x\n"), None, "run.sh:"),
    "functions that call each other": (build_script(f"f() {{ g; }}\ng() {{ f; {SFT}$@; }}\nf\n"), None, "run.sh:"),
    "files that source each other": ({"a.sh": f"source b.sh\n{SFT}\n", "b.sh": "source a.sh\nX=$X$X\n"}, None, "a.sh:"),
    "defaults of defaults": (build_script("x=" + "${x:-" * 3000 + "a" + "}" * 3000 + f"\n{SFT}$x\n"), None, ""),
    "a calculation without end": (
        {"t.py": "from olmo_core.config import Config\nx = 10**10**10\ny = 'a' * 10**12\nz = 1 << 10**12\n"},
        None, "",
    ),
    "calls that call themselves twice": (
        {f"{number}.py": "from trl import SFTConfig, SFTTrainer\ndef f(x): return f(x)+f(x)\na=f(1)\n"
         "SFTTrainer(args=SFTConfig(output_dir=a))\n" for number in range(12)},
        0, "CHK005",
    ),
    "a name that is no program": (build_script(f"X={'a' * 100_000}\n{SFT}--save_path "
                                               f"\"${{X##*a*a*a*a*b}}\"\n"), None, ""),
    "stars of what git ignores": (
        {f"{'a' * 200}/{'a' * 200}/a.yaml": AXOLOTL, ".gitignore": "**/*a*a*a*a*a*a*b/**/x\n" * 100}, None, "",
    ),
    "signs without end": ({"t.py": "from olmo_core.config import Config\nx = " + "-" * 100_000 + "1\n"}, 2, "SYN002"),
    "settings of one endless key": (
        build_settings(".".join(["a"] * 100_000) + " = 1\n"), 2, "a key with more than 100 parts",
    ),
    "settings of endless lists": (build_settings("x = " + "[" * 100_000 + "]" * 100_000), 2, "nested too deeply"),
    "settings of a huge number": (build_settings("[hardware]\nnodes = " + "9" * 100_000), 2, "cfglint.toml"),
    "patterns of every path": (
        build_settings("exclude = [" + ", ".join(f'"**/{n}*{{a,b,c}}*?[a-z]*"' for n in range(20_000)) + "]\n"),
        2, "exclude has too many path patterns",
    ),
    "as many patterns as there may be": (
        build_settings("exclude = [" + ", ".join(f'"**/{n}*{{a,b,c}}*?[a-z]*x{n}*[b-y]*"'
            for n in range(5000)) + "]\n"),
        None, "",
    ),
    "settings for each path": (
        build_settings("".join(f'[[overrides]]\npaths=["*{n}*"]\nhardware={{nodes={n + 1}}}\n' for n in range(5000))),
        None, "",
    ),
    "patterns without end": (
        build_yaml("unfrozen_parameters:\n" + "".join(f"  - '(a|b|ab)*{n}(x+x+)+y{{1,100}}'\n" for n in range(300))),
        None, "",
    ),
    "requirements without end": (build_long_requirements("requirements.txt", "axolotl==0.8.0\n"), None, ""),
    "requirements of others": (
        build_long_requirements("requirements.txt", "numpy==1.26\n", "axolotl==0.8.0\n"), None, "",
    ),
    "a lock without tables": (build_long_requirements("uv.lock", CLONE.partition("\n")[2]), None, ""),
    "a lock of one package": (build_long_requirements("uv.lock", CLONE), None, ""),
    "an environment without end": (
        build_long_requirements("environment.yml", "  - numpy=1.26\n", "  - axolotl=0.8.0\n"), None, "",
    ),
    "an image without end": (
        build_long_requirements("Dockerfile", "RUN pip install numpy axolotl==0.8.0 && \\\n"), None, "",
    ),
    "a page of commands": (
        build_long_requirements("README.md", "pip install git+https://github.com/x/axolotl@a\n"), None, "",
    ),
    "comments of a page each": (
        build_yaml(f"# cfglint: gpu={'H' * 100_000}\n# cfglint: ignore[{'A,' * 100_000}]\n"), 2, "a.yaml:",
    ),
    "a model of nothing": (
        {"a.yaml": AXOLOTL.replace("Qwen/Qwen2.5-0.5B", "./m"), "m/config.json": '{"model_type": "llama", '
         '"hidden_size": 1e308, "num_hidden_layers": 99999999999, "num_attention_heads": 0, "vocab_size": -5}'},
        None, "",
    ),
    "names that no file can have": (
        {
            **build_yaml("deepspeed: \"~\\0\"\n"),
            **{
                f"{number}.yaml": AXOLOTL.replace("Qwen/Qwen2.5-0.5B", f'"{name}\\0"')
                for number, name in enumerate(("~", "./m", "us/m"))
            },
        }, 0, "2.yaml:1:1: info CHK001 memory not checked: the model `us/m\\x00` is a path",
    ),
    "settings that name no file": (build_settings('extend = "~a\\u0000b"\n'), 2, "points outside the repository"),
    "secrets in odd places": (
        {
            **build_yaml(f"lora_rr: |\n  {TOKEN}\nhub_model_idd: {ADDRESS}/x\nwandb_keyy:\n- {TOKEN}\n? {TOKEN}\n: "
                         "1\n"),
            **build_json(f'"wandb": {{"api_key": "{HEX}"}}, "{TOKEN}": 1, "x": "{ADDRESS}"'),
            f"{TOKEN}/b.yaml": AXOLOTL.replace("path: ", f"path: {ADDRESS}/") + "lora_rr: 8\n",
        }, 1, "SEC002",
    ),
}  # fmt: skip


def create_repository(folder: Path, files: Mapping[str, str]) -> None:
    (folder / ".git").mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))


def check_no_leak(folder: Path, output: str) -> None:
    assert not any(secret in output for secret in (TOKEN, HEX, "S3cr3tP4ssw0rd99"))
    assert find_forged_commands(output) == []
    assert find_control_characters(output) == []
    assert not (folder / "pwned").exists()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_answered_in_its_place(name: str, tmp_path: Path) -> None:
    files, code, message = ATTACKS[name]
    create_repository(tmp_path, files)
    outcome = run_limited("--no-cache", ".", cwd=tmp_path)
    check_handled(outcome)
    assert code in (None, outcome.code), outcome.out[:2000] + outcome.err[:2000]
    assert message in outcome.out + outcome.err
    assert len(outcome.out) < LONGEST
    check_no_leak(tmp_path, outcome.out + outcome.err)


@pytest.mark.parametrize("clue", [SFT, "# openrlhf", "echo not-openrlhf-itself"])
@pytest.mark.parametrize("around", ["if a; then\n" * 300 + "{}" + "\nfi" * 300, "{}\n\0\n", "{}" + "\n" * 30_000])
def test_what_is_not_read_fails(clue: str, around: str, tmp_path: Path) -> None:
    create_repository(tmp_path, build_script(around.replace("{}", clue)))
    outcome = run_cfglint("run.sh", cwd=tmp_path)
    assert outcome.code == (2 if clue == SFT else 0)
    assert ("run.sh:" in outcome.out and "error SYN" in outcome.out) == (clue == SFT)


def create_loops(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    (folder / "a.yaml").symlink_to("b.yaml")
    (folder / "b.yaml").symlink_to("a.yaml")
    (folder / "self").symlink_to(".")
    (folder / "up").symlink_to("..")
    (folder / "c.yaml").write_text(AXOLOTL + "deepspeed: loop/x.json\nbase_model_config: self/self/up\n")


def create_pipes(folder: Path) -> None:
    for name in ("a.yaml", "ds.json", "requirements.txt", "run.sh"):
        os.mkfifo(folder / name)
    (folder / "pyproject.toml").mkdir()
    (folder / "c.yaml").write_text(AXOLOTL + "deepspeed: ds.json\n")


def create_device_links(folder: Path) -> None:
    for name, to in {"z.yaml": "/dev/zero", "e.yaml": "/proc/self/environ", "k.json": "/proc/kcore"}.items():
        (folder / name).symlink_to(to)
    (folder / "c.yaml").write_text(AXOLOTL + "deepspeed: /dev/zero\naccelerate_config: /proc/self/environ\n")


def create_many_files(folder: Path) -> None:
    for number in range(20_000):
        (folder / f"{number}.txt").touch()
    (folder / "c.yaml").write_text(AXOLOTL + "unheard_of: 1\n")


@pytest.mark.parametrize("make", [create_loops, create_pipes, create_device_links, create_many_files])
def test_a_folder_is_answered(make: Callable[[Path], None], tmp_path: Path) -> None:
    home = tmp_path / "home"
    create_repository(home.parent, {"home/x.md": ""})
    make(home)
    outcome = run_limited("--no-cache", "--fix", ".", cwd=home)
    check_handled(outcome)
    assert "c.yaml" in outcome.out
    check_no_leak(home, outcome.out + outcome.err)


NAMES = [
    b"-rf.yaml", b"--fix.yaml", b"a\nb.yaml", b"\x1b[2Jx.yaml", b"\xff\xfe.yaml", b"$(touch pwned).yaml",
    b"a'b\"c`d.yaml",
    b"x\r::error::y.yaml", b"%0A::error::z.yaml", b"]]><x>.yaml", b"|'|n##teamcity[x].yaml", b"<script>alert(1)<x.yaml",
]  # fmt: skip


@pytest.mark.parametrize("form", FORMATS)
def test_names_and_secrets_in_every_format(form: str, tmp_path: Path) -> None:
    create_repository(tmp_path, ATTACKS["secrets in odd places"][0])
    for name in NAMES:
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
            file.write((AXOLOTL + "lora_rr: 8\n").encode())
    outcome = run_limited("--no-cache", "--output-format", form, ".", cwd=tmp_path)
    check_handled(outcome)
    assert outcome.code == 1
    check_no_leak(tmp_path, outcome.out.replace("\t", " ") + outcome.err)
    if form in ("html", "junit"):
        assert "<script>alert" not in outcome.out
