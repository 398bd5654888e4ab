# SPDX-License-Identifier: Apache-2.0
"""Serves the WSGI application of a module: serve.py MODULE PORT [ARGUMENTS of the module]."""

import importlib
import sys

import waitress

module, port = sys.argv[1], int(sys.argv[2])
sys.argv = [module, *sys.argv[3:]]
application = importlib.import_module(module).application
waitress.serve(application, host="127.0.0.1", port=port, threads=8)
