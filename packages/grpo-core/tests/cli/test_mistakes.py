"""A mistake is one line on stderr and exit code 2, said before torch is imported, which takes seconds."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from reported_runs import make_run, rollout

from grpo_core.checkpoints import CheckpointStore, write_json
from grpo_core.config import RunConfig, resolve, to_yaml
from grpo_core.tracking.presence import working_in
from grpo_sdk.cli.group import COMMANDS

PROGRAMS = Path(__file__).parent / "programs"

LETTERS = "--task ./letters.py:letters"
SWEEP = "sweep task=./letters.py:letters model=tiny trainer.learning_rate=1e-5,1e-4"
RUN = f"run {LETTERS} --model tiny"
EVAL = f"eval {LETTERS} --model tiny"
NEW = "--preset tiny --out out"
NEW_ROWS = "new one --from-jsonl rows.jsonl"

MISTAKES = {
    "rn": "Did you mean 'run'?",
    "run --task nothing.here": "no task 'nothing.here'",
    "run --task 'a b'": "task spec 'a b' cannot be read",
    "run --task ./letters.py:letters?sise=3": "Did you mean 'size'?",
    "run --config nope.yaml": "--config nope.yaml: there is no such file.",
    "run --output-dir -": "output_dir '-': standard input",
    "run --model ''": "--model is empty",
    "run --seed 1 seed=2": "seed is given twice on the command line: '1' and '2'.",
    "run --lr 3": "no option --lr. Settings are written without dashes: trainer.learning_rate=VALUE",
    "run --max-step 3": "'--max-steps'",
    "run math.gsm8k": "'math.gsm8k' is not KEY=VALUE",
    "run '\x1b[2J=1'": "no setting",
    "run --recipe dapoo": "Did you mean 'dapo'?",
    f"run {LETTERS} --model tny": "Did you mean 'tiny'?",
    f"run {LETTERS} --model nobody/nothing": "not in the hub's cache",
    f"{RUN} --adapter ./a": "--adapter ./a: a PEFT adapter",
    f"{RUN} trainer.train_size=9": "has 8 training rows",
    f"{RUN} --eval-task no.no": "no task 'no.no'",
    f"{RUN} --track wand": "Did you mean 'wandb'?",
    f"{RUN} --track wandb,wandb": "wandb is given twice",
    f"{RUN} --dry-run trainer.sharding=full": "this is the only one. Start several (--nproc N",
    "run --nproc 0": "--nproc '0' must be ",
    "run --max-restarts x": "--max-restarts 'x' must be ",
    "run --node-rank 0": "several machines: add --nnodes N",
    "run --nnodes 2": "--nnodes 2 needs --node-rank: grpo run --nnodes 2 --node-rank I --rdzv-endpoint HOST:PORT",
    "run --nnodes 2 --node-rank 2 --rdzv-endpoint a:1": "--node-rank 2 must be below --nnodes 2",
    "run --nnodes 2 --node-rank 0 --rdzv-endpoint a:99999": "--rdzv-endpoint 'a:99999' must be HOST:PORT",
    "run --nproc 2 --max-restarts 1 --stop-after 3": "--max-restarts with --stop-after: ",
    "run --nnodes 3 --nproc 1 --node-rank 0 --rdzv-endpoint a": "3 ranks cannot share the 32 prompts",
    f"{RUN} --dry-run --nproc 4 trainer.prompts_per_step=6": "4 ranks cannot share the 6 prompts",
    "run --dry-run --task math.arithmetic?size=7 --preset baseline": "task math.arithmetic has 7 training rows",
    f"run --dry-run --model Qwen/Qwen2.5-0.5B-Instruct profile={'a' * 5000}": "no profile 'aaa",
    "run --dry-run --model Qwen/Qwen2.5-0.5B-Instruct --preset ultrasmall": "Did you mean 'ultra_small'",
    "run --quick --task ./letters.py:letters --dry-run": "leave out --show-config, --dry-run and --nproc",
    "launch slurm --mem nan --dry-run": "--mem 'nan': give a number",
    "launch slurm": "there is no sbatch here",
    "launch slurm --partiton gpu": "Did you mean '--partition'?",
    "launch slurm trainer.max_stepps=3": "Did you mean 'trainer.max_steps'?",
    "launch slurm --time '3 hours'": "HOURS:MINUTES:SECONDS",
    "launch slurm --time 1 --save-seconds 60": "must be less than --time, 60 seconds",
    "launch slurm --seeds 1,1": "different whole numbers",
    "launch slurm --seeds 1,2 --seed 4": "leave out --seed",
    "launch slurm --output-dir /dev/null/runs": "--output-dir /dev/null/runs: nothing can be made in",
    'launch slurm --each "\'"': "No closing quotation",
    "launch slurm --each '--nproc 4' --each '--nproc 2'": "nproc is 4 and 2, but all runs of an array have one",
    "launch slurm --sbatch wrap=true": "settings after the command",
    "launch slurm --setup 'a\nb'": "line breaks are not allowed",
    "launch slurm --task 'a\nb'": "control characters",
    "launch slurm --nodes 3": "3 ranks cannot share the 8 prompts",
    "launch slurm -- --dry-run": "is of grpo run on this machine",
    "launch sky --spot": "--spot needs --bucket or --volume",
    "launch sky --nodes 2": "--nodes 2 needs --volume, and no --bucket",
    "launch sky --bucket s3:mine": "--bucket 's3:mine': give s3://BUCKET/FOLDER",
    "launch sky --gpus L4": "no sky here: uv tool install 'skypilot",
    "launch ssh --task=a trainer.seed=1": "'--task=a' is not a host",
    "launch ssh host --session a/b": "--session 'a/b': use letters",
    "launch ssh host --ssh no-such-ssh": "--ssh 'no-such-ssh': there is no such command here",
    "launch ssh host trainer.sharding=full": "this is the only one",
    f"{EVAL} --base ./none": "there is no such folder",
    f"{EVAL} --split tests": "must be train, validation or test",
    f"{EVAL} --adapter a": "--adapter a: there is no such adapter",
    f"{EVAL} --eval-dir letters.py": "nothing can be made in",
    f"{EVAL} --overwrite": "--overwrite: nothing is written without --eval-dir.",
    f"{EVAL} --timeout-s 5": "--timeout-s: without --run there are no checkpoints.",
    f"eval {LETTERS} --endpoint http://localhost:1/v1": "needs --model NAME",
    "eval --run finished --model tiny": "--model: --run takes the models of the run.",
    "eval --run finished --base tiny --no-base": "--base and --no-base contradict each other",
    "eval --run finished --timeout-s nan": "nan is no number in the range",
    f"{SWEEP} --baseline 3": "are numbered from 1 to 2",
    f"{SWEEP} --slurm '--timme 3'": "--slurm '--timme 3': give options of grpo launch slurm alone",
    f"{SWEEP} --slurm '--time 30' --jobs 2": "--slurm '--parallel 2'",
    f"{SWEEP} --slurm '--time 30' --show": "--show and --slurm exclude one another",
    f"{SWEEP} --show": "this sweep has not begun",
    f"{SWEEP} --metric mine": "Give --goal max or --goal min",
    f"{SWEEP} trainer.num_generations=8,1": "configuration 2 (trainer.learning_rate=1e-5 trainer.num_generations=1): ",
    f"{SWEEP} trainer.sharding=none,full": "On a SLURM cluster it is N: --slurm '--gpus N'.",
    f"{SWEEP} search.yaml": "Did you mean 'trainer.loss_type'",
    "sweep trainer.beta=0.1": "nothing varies",
    "sweep trainer.beta=0,,1": "a value is empty",
    "sweep 'trainer.beta=\"0,1'": "write values as in",
    "sweep lora.target_modules=[q_proj,v_proj": "a bracket is not closed",
    "sweep lora.r=8,16 seed=0,0": "a seed is given twice: 0, 0",
    "sweep output_dir=a,b": "give --output-dir",
    "sweep finished": "finished: a folder without a sweep.json",
    "sweep nothing.yaml": "nothing.yaml: cannot be read: No such file",
    "sweep search.yaml other.yaml": "search.yaml and other.yaml are two files",
    "warm-start --out x": "--task",
    f"warm-start {LETTERS} --out out": "--preset tiny for a new model",
    f"warm-start {LETTERS} --preset tny --out out": "Did you mean 'tiny'?",
    f"warm-start --task ./letters.py:letters?path=nogold {NEW}": "has no gold",
    f"warm-start {LETTERS} {NEW} --vocab-size 3": "the least is 258",
    f"warm-start {LETTERS} --preset tiny --out .": "the folder is not empty",
    "resume ''": "an argument is empty ('')",
    "resume /dev/null": "is not a run folder: it is a device",
    "resume finished": "nothing is left to do",
    "resume finished --from-step 7": "has no step_7",
    "resume changed": "seed is 5 now, and the checkpoint was trained with 0",
    f"resume x --additional-steps {'1' * 30}": "is not in the range 1<=x<=1000000000",
    "resume finished --additional-steps 1 --allow task --nproc 5": "5 ranks cannot share the 32 prompts",
    "resume used --additional-steps 1": "used is in use: process",
    "resume finished --additional-steps 1": "changed since the checkpoint",
    "publish finished o --license 'a: ['": "--license 'a: ['",
    f"publish finished ./o --step {'1' * 5000}": "give latest, final or the number of a step",
    "publish finished ./o --private": "--private is for the hub",
    "publish finished ~nobody-of-this-name/m": "there is no such home folder",
    "publish finished a/b/c": "no hub id, which is owner/name",
    "publish finished 'owner/na me'": "is no hub id",
    "publish finished used/m": "there is a folder 'used' here. Write ./used/m for the folder, or hub:used/m",
    "publish finished o --dataset 'a b'": "--dataset 'a b' is no hub id",
    "publish finished o --eval-dir letters.py": "--eval-dir letters.py: it is a file",
    "archive finished file:letters.py": "file:letters.py: it is a file",
    "archive --list file:nowhere": "file:nowhere: there is no such folder",
    "archive finished file:finished/logs": "lies in the run",
    "archive finished ftp://x/y": "give s3://BUCKET/FOLDER",
    "archive finished s3:///x": "'s3:///x' names no bucket",
    "archive finished s3://AKIA:hush-hush@bucket/x": "Keys don't belong into a URL",
    "restore file:nothing/run_1": "no archived run",
    "report finished finished": "is given twice",
    "report finished --json --serve": "--serve and --json exclude one another",
    "report finished --port 80": "--port 80 is of --serve",
    "report finished --output finished": "--output finished is a folder",
    "report finished --output nowhere/page.html": "there is no folder nowhere",
    "serve core.qa --host 0.0.0.0": "needs a token",
    "serve core.qa --ssl-keyfile key.pem": "--ssl-keyfile needs --ssl-certfile",
    "serve ./letters.py:letters --opponent-url x": "write http://host:port/v1#model",
    "serve ./letters.py:letters --opponent-url http://": "is no address",
    "serve ./letters.py:letters --token-file no": "--token-file no: No such file or directory.",
    "eval --run finished --config x.yaml": "--config does not go with it",
    "rollouts nowhere": "no run nowhere",
    "rollouts finished --task math.arithmatic": "Did you mean 'math.arithmetic'?",
    "rollouts finished --step 7": "--step 7: this run has completions of steps 1 to 1.",
    f"rollouts finished --step {'9' * 5000}": "give a step, counted from 1",
    "rollouts finished --worst --best": "--worst and --best exclude one another",
    f"runs {'a' * 300}": "File name too long",
    "runs shwo": "no folder and no command 'shwo'. Did you mean 'show'?",
    "runs show .": ". is not a run folder: no config.yaml in it",
    "runs compare finished": "grpo runs compare takes 2 runs or more; 1 given.",
    "runs --wandb a/b/c": "give ENTITY/PROJECT",
    "runs --limit 3": "--limit 3 is of --wandb",
    "runs list training_runs --wandb us/sums": "leave out training_runs",
    "watch": "no run in training_runs yet. Start one with grpo run",
    "watch finished": "grpo watch needs a terminal. In a pipe or a file: grpo runs show finished --json",
    "sample ./no.py": "there is no file ./no.py",
    f"sample math.arithmetic?seed=1{'0' * 30}": "option seed: a whole number has at most 64 bits",
    "fetch nothing.here": "no task 'nothing.here'",
    "fetch ./folder/x": "./folder/x",
    f"fetch {'x' * 300}/y": "is no hub id: ",
    "profiles a1000": "Did you mean 'a100'",
    "explain ./letters.py:letters?path=nogold": "has no gold: give --completion",
    "explain ./letters.py:letters --completion @nothing.txt": "no such file",
    "explain ./letters.py:letters --prediction 4": "has no opponent",
    "new math": "name 'math' is that of a plugin: grpo-tasks-math",
    "new maths": "name 'maths' is too near to the plugin 'math'",
    "new class": "name 'class' is a word of Python",
    "new numpy": "name 'numpy' is that of another package; try my-numpy",
    "new ../up": "name '../up': use up to 60 letters",
    "new finished": "finished exists already, and nothing is overwritten",
    "new one --game --multi-turn": "--game and --multi-turn: give one of them",
    "new one --verifier exact": "about the file of --from-jsonl, which is missing",
    "new one --from-jsonl rwos.jsonl": "no file rwos.jsonl",
    "new one --from-jsonl latin1.jsonl": "latin1.jsonl:1: not UTF-8 text; save the file as UTF-8",
    "new one --from-jsonl nested.jsonl": "nested.jsonl:1: column 'answer' is a list",
    f"{NEW_ROWS} --fields question": "--fields 'question': write FIELD:COLUMN",
    f"{NEW_ROWS} --fields question:promt,answer:gold": "rows.jsonl has no column 'promt'",
    f"{NEW_ROWS} --fields qestion:prompt": "no field 'qestion'. Did you mean",
    f"{NEW_ROWS} --verifier choice": "must be a letter from A to J",
}
"""Command line -> words of what is said."""

TAKEN = ("--help", "tasks", "models", "run --dry-run device=cpu")
"""Command lines that are no mistakes, and need no torch either."""


def stored_run(folder: Path, *, seed: int = 0) -> None:
    """A finished run of two steps, as far as its folder is read without its weights."""
    config = resolve(RunConfig(task="./letters.py:letters", model="tiny", seed=0, trainer={"max_steps": 2})).config
    make_run(folder, [rollout(1, 0, 0, 0.0, task="math.arithmetic")], steps=2)
    (folder / "config.yaml").write_text(to_yaml(config.model_copy(update={"seed": seed})))
    with CheckpointStore(folder).writing("final") as checkpoint:
        steps = {"step": 2, "planned_steps": 2, "end_step": 2, "is_extension": False}
        write_json(checkpoint / "trainer_state.json", {**steps, "seconds": 1.0, "best": {"waited": 0}})
        known = {"training_config": config.model_dump(mode="json"), "identities": {"./letters.py:letters": "0" * 16}}
        write_json(checkpoint / "training_info.json", {**known, "ingredients": {}, "versions": {}})
    write_json(folder / "summary.json", {"steps": 2, "tasks": {}})


Reports = dict[str, dict[str, object]]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """Exit code, outputs and imported modules of every command line; one process takes all of them."""
    here = tmp_path_factory.mktemp("mistakes")
    (here / "letters.py").write_bytes((PROGRAMS / "letters.py").read_bytes())
    (here / "rows.jsonl").write_text("".join(f'{{"prompt": "{n} + 1?", "gold": {n + 1}}}\n' for n in range(20)))
    (here / "latin1.jsonl").write_bytes('{"question": "café?", "answer": "x"}'.encode("latin-1"))
    (here / "nested.jsonl").write_text('{"question": "a?", "answer": ["x", "y"]}')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        stored_run(here / "finished")
        stored_run(here / "changed", seed=5)
        stored_run(here / "used")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPO_")}
    environment |= {"HF_HUB_OFFLINE": "1", "PATH": ""}  # where there is no sbatch
    (here / "search.yaml").write_text("method: optuna\ntrials: 2\nparameters: {trainer.los_type: [grpo, dapo]}\n")
    before = sorted(here.iterdir())
    with working_in(here / "used"):
        done = subprocess.run(
            [sys.executable, PROGRAMS / "report.py"],
            input=json.dumps({line: shlex.split(line) for line in (*TAKEN, *MISTAKES)}),
            capture_output=True, text=True, cwd=here, env=environment, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(here.iterdir()) == before, "a mistake writes nothing"
    reports: Reports = json.loads(done.stdout)
    return reports


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_reported_before_torch_is_imported(reports: Reports, line: str) -> None:
    report = reports[line]
    said = str(report["stderr"])
    assert (report["code"], report["stdout"], report["torch"]) == (2, "", False), said
    assert said.startswith("error: ") and said.count("\n") == 1
    assert MISTAKES[line] in said
    assert "\x1b" not in said and "hush-hush" not in said and len(said) < 2000


def test_what_needs_no_model_imports_no_torch(reports: Reports) -> None:
    assert [(reports[line]["code"], reports[line]["torch"]) for line in TAKEN] == [(0, False)] * len(TAKEN)
    for name, (_, help_line) in COMMANDS.items():
        assert f"\n  {name}" in str(reports["--help"]["stdout"]) and help_line in str(reports["--help"]["stdout"])


def test_a_missing_torch_says_how_to_install_it(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"question": "{i}?", "answer": "{i}"}}\n' for i in range(64)))
    program = "import sys; sys.modules['torch'] = None; exec(sys.stdin.read())"
    words = ["--task", "core.qa?path=rows.jsonl", "--model", "tiny"]
    calls = f"from grpo_sdk.cli.main import main\nfor each in 'run', 'eval':\n    assert main([each, *{words}]) == 2"
    done = subprocess.run(
        [sys.executable, "-c", program], input=calls, capture_output=True, text=True, cwd=tmp_path, check=True
    )
    said = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(said) == 2 and "Traceback" not in done.stderr
    for line in said:
        assert line.startswith("error: this needs the package torch, which is not installed: pip install 'torch>=")
        assert f"(the environment is {sys.prefix}); https://pytorch.org/" in line
