"""Serves Keystone or Neutron on loopback with waitress.

Usage: serve.py keystone|neutron DIRECTORY PORT

DIRECTORY holds the configuration, `keystone.conf` or `neutron.conf`.
"""

import os
import sys

import waitress


def keystone(directory):
    os.environ["OS_KEYSTONE_CONFIG_DIR"] = directory
    from keystone.server import wsgi

    return wsgi.initialize_public_application()


def neutron(directory):
    from neutron.common import config

    # Older versions register these options when the module is imported.
    if hasattr(config, "register_common_config_options"):
        config.register_common_config_options()
    config.init([], default_config_files=[os.path.join(directory, "neutron.conf")])
    config.setup_logging()
    config.set_config_defaults()
    return config.load_paste_app("neutron")


def main():
    name, directory, port = sys.argv[1:]
    # The servers read the arguments of the process, too.
    sys.argv = sys.argv[:1]
    application = {"keystone": keystone, "neutron": neutron}[name](directory)
    # SQLite has one writer at a time, so one thread handles the requests.
    waitress.serve(application, host="127.0.0.1", port=int(port), threads=1, ident=None)


main()
