# SPDX-License-Identifier: Apache-2.0
"""What starts, prepares and ends the cloud. Standard library only: it runs before anything is installed."""
