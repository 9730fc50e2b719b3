"""The environment of a job's requirements on an engine: its first job makes it, others find it.

It lies on the folder that the engine's machines share, for one team, under the hash of what it is
made from; `run.shared_environment_entry` has what is there. No other user makes it than who runs
the jobs: there is one for all, or for each account that jobs have.
"""

import json
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

from headway.code.unpack import give, unpack
from headway.durable import give_name_to_all, replace_file
from headway.engine.login import Login
from headway.home import have_passable
from headway.model.code import CodeManifest
from headway.model.environment import environment_id
from headway.model.outside import CERTIFICATES_FILE
from headway.run.environment import made_from, maker_of, reached_by, wanted_by
from headway.run.here import NodeAttempt
from headway.run.outside import certificates_of
from headway.trees import remove

_ENTRY = Path(__file__).with_name("environment_entry.py")
_STARTER = Path(__file__).with_name("shared_environment_entry.py")


def words_before(attempt: NodeAttempt, login: Login | None) -> tuple[str, ...]:
    """What comes before the command of a job that names requirements; nothing where it names none.

    *login* is whose job it is, where it is not this process's user's.

    Raises:
        InvalidInput: The code has no such file, or it asks for what no environment can have.
        CodeMissing: A part of the code is nowhere any more.
        RuntimeFailure: The site's certificates are not there.
        CacheUnusable, OSError: The shared folder does not take it.
    """
    job, settings = attempt.job, attempt.site.settings
    if not job.requirements or job.code is None:
        return ()
    wanted, wheels, parts = wanted_by(attempt, job.code)
    outside, variables = reached_by(attempt)
    certificates = certificates_of(attempt, outside)
    name = environment_id(*made_from(wanted, wheels, variables), certificates)
    above = settings.engines_dir / "environments"
    if login is not None:
        above = settings.slurm_dir / ".environments" / login.name
    folder = above / job.team / name
    if not folder.exists():  # which is whole from its first moment on
        have_passable(folder.parent)
        part = Path(mkdtemp(prefix=f"{name}.", dir=folder.parent))
        try:
            files = part / "given"
            unpack(CodeManifest(wheels), parts, files, None)
            place = str(folder / "given" / CERTIFICATES_FILE) if certificates else ""
            variables = {**variables, **outside.variables(place)}
            variables["HEADWAY_CONTACT"] = outside.contact
            for file, text in (
                (files / "requirements.txt", wanted.text),
                (files / "constraints.txt", wanted.constraints_text),
                (files / CERTIFICATES_FILE, certificates),
                (part / "entry.py", _ENTRY.read_text()),
                (part / "start.py", _STARTER.read_text()),
                (part / "variables.json", json.dumps(variables)),
            ):
                replace_file(file, text)
            if login is not None:
                give(part, login.ids)
            # After a loss of power an empty start.py would end well, and nothing would have run.
            give_name_to_all(part, folder)
        except BaseException as error:
            with suppress(OSError):  # what went wrong before is what is told
                remove(part)
            # Else the queue of another pool was faster.
            if not (isinstance(error, OSError) and folder.exists()):
                raise
    uv = maker_of(settings.environments_dir)
    return (
        "python3",
        "-I",
        str(folder / "start.py"),
        str(folder),
        job.requirements,
        str(uv / "uv"),
    )
