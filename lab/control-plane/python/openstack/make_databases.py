"""Makes the SQLite databases and the keys of Keystone and Neutron in a directory.

Usage: make_databases.py DIRECTORY PASSWORD

DIRECTORY holds the configurations `keystone.conf` and `neutron.conf`. Afterwards, Keystone has the user `admin` with
PASSWORD and role `admin` in the project `admin`, the default domain and roles, the region `RegionOne`, and an empty
catalogue.

The migrations of Neutron fail on SQLite, so the tables are those of the models.
"""

import importlib
import os
import pathlib
import sqlite3
import sys


def keystone(directory, password):
    os.environ["OS_KEYSTONE_CONFIG_DIR"] = directory
    import keystone
    import keystone.conf
    import keystone.server
    from keystone.cmd import bootstrap
    from keystone.common import fernet_utils, sql

    keystone.server.configure(config_files=[os.path.join(directory, "keystone.conf")])
    # A module defines its tables when it is imported.
    package = pathlib.Path(keystone.__path__[0])
    for module in package.glob("*/*backends/sql*.py"):
        importlib.import_module(".".join(("keystone", *module.relative_to(package).with_suffix("").parts)))
    with sql.session_for_write() as session:
        sql.ModelBase.metadata.create_all(session.connection())
    conf = keystone.conf.CONF
    for section, options in (("fernet_tokens", conf.fernet_tokens), ("credential", conf.credential)):
        keys = fernet_utils.FernetUtils(options.key_repository, 3, section)
        keys.create_key_directory()
        keys.initialize_key_repository()
    bootstrapper = bootstrap.Bootstrapper()
    bootstrapper.admin_username = "admin"
    bootstrapper.admin_password = password
    bootstrapper.admin_role_name = "admin"
    bootstrapper.project_name = "admin"
    bootstrapper.service_name = "keystone"
    bootstrapper.region_id = "RegionOne"
    bootstrapper.immutable_roles = True
    bootstrapper.bootstrap()


def neutron(directory):
    from neutron_lib.db import api, model_base

    from neutron.common import config
    from neutron.db.migration.models import head  # noqa: F401  (defines all tables)

    # Older versions register these options when the module is imported.
    if hasattr(config, "register_common_config_options"):
        config.register_common_config_options()
    config.init([], default_config_files=[os.path.join(directory, "neutron.conf")])
    model_base.BASEV2.metadata.create_all(api.get_context_manager().writer.get_engine())


def main():
    directory, password = sys.argv[1:]
    # Both read the arguments of the process, too.
    sys.argv = sys.argv[:1]
    # A process of its own for each, since both have the same global configuration.
    for make in (lambda: keystone(directory, password), lambda: neutron(directory)):
        if os.fork() == 0:
            make()
            sys.exit()
        if os.wait()[1] != 0:
            sys.exit(1)
    for name in ("keystone", "neutron"):
        # With a write-ahead log no commit waits for readers. The file keeps this setting.
        database = sqlite3.connect(os.path.join(directory, "data", name + ".sqlite"))
        database.execute("PRAGMA journal_mode=WAL")
        database.close()


main()
