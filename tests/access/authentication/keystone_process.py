"""A real Keystone on SQLite, for the interpreter of its own virtual environment: ``python keystone_process.py FOLDER``.

Prints ``ready PORT`` when it serves. The administrator is ``admin`` with the password ``secret``.
"""

import os
import sys
from pathlib import Path

CONF = """\
[DEFAULT]
log_file = {folder}/keystone.log
[database]
connection = sqlite:///{folder}/keystone.db
[fernet_tokens]
key_repository = {folder}/fernet
[fernet_receipts]
key_repository = {folder}/fernet
[credential]
key_repository = {folder}/credential
[token]
provider = fernet
[identity]
password_hash_rounds = 4
[cache]
enabled = false
"""


def main(folder: Path) -> None:
    from cryptography.fernet import Fernet

    conf = folder / "keystone.conf"
    fresh = not conf.exists()
    if fresh:
        for name in ("fernet", "credential"):
            (folder / name).mkdir(mode=0o700)
            for index in ("0", "1"):
                (folder / name / index).write_bytes(Fernet.generate_key())
                (folder / name / index).chmod(0o600)
    conf.write_text(CONF.format(folder=folder))
    # oslo.config reads the command line by itself.
    sys.argv = ["keystone"]
    os.environ["OS_KEYSTONE_CONFIG_FILES"] = str(conf)

    if fresh:
        from keystone import server
        from keystone.cmd import bootstrap
        from keystone.common.sql import upgrades

        server.configure(config_files=[str(conf)])
        upgrades.offline_sync_database_to_version()
        steps = bootstrap.Bootstrapper()
        steps.admin_username = steps.admin_role_name = steps.project_name = "admin"
        steps.admin_password = "secret"
        steps.immutable_roles = True
        steps.bootstrap()
        # What bootstrap has set up in this process is not what the server sets up.
        os.execv(sys.executable, [sys.executable, __file__, str(folder)])

    from keystone.server.wsgi import initialize_public_application
    from waitress.server import create_server

    server = create_server(initialize_public_application(), host="127.0.0.1", port=0, threads=4)
    print("ready", server.effective_port, flush=True)
    server.run()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
