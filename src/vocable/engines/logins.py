"""Logins of servers, by files and keys that the environment names; no message or log has them."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Self

from vocable.core.tables import masked
from vocable.engines.addresses import Server
from vocable.errors import ArgumentError

logger = logging.getLogger(__name__)

VARIABLES = {"ca_certs": "CA_FILE", "client_cert": "CERT_FILE", "client_key": "KEY_FILE"}  # by the drivers' names


class Login(NamedTuple):
    """The values of an engine's variables, such as OPENSEARCH_CA_FILE."""

    tls: dict[str, str]  # CA, certificate and key, by the drivers' names
    user: str | None = None
    password: str | None = None
    token: str | None = None  # of a bearer
    api_key: str | None = None
    region: str | None = None  # of AWS, whose credentials sign requests

    @classmethod
    def of(cls, prefix: str, servers: Sequence[Server]) -> Self:
        """Read the variables with a prefix; a user and a password in the address come before them.

        Raises `ArgumentError` for a file that does not exist.
        """
        variables = {name: value for name, value in os.environ.items() if value and name.startswith(f"{prefix}_")}
        files = {
            option: variables[name] for option, end in VARIABLES.items() if (name := f"{prefix}_{end}") in variables
        }
        for option, file in files.items():
            if not Path(file).is_file():
                raise ArgumentError(f"{prefix}_{VARIABLES[option]}: there is no file {file}")
        encrypted = servers[0].url.startswith("https:")
        password = servers[0].password or variables.get(f"{prefix}_PASSWORD")
        user = servers[0].user or variables.get(f"{prefix}_USERNAME")
        if password is not None and user is not None:
            return cls(files if encrypted else {}, user, password)
        ends = ("TOKEN", "API_KEY", "AWS_REGION")
        token, api_key, region = (variables.get(f"{prefix}_{end}") for end in ends)
        if (token or api_key) and not encrypted:
            logger.warning("%s: the key is sent without encryption: use https", masked(servers[0].url))
        return cls(files if encrypted else {}, None, None, token, api_key, region)

    @property
    def headers(self) -> dict[str, str]:
        """The header that a token or an API key needs."""
        if self.token is not None:
            return {"authorization": f"Bearer {self.token}"}
        return {} if self.api_key is None else {"authorization": f"ApiKey {self.api_key}"}
