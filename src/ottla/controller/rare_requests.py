"""Decisions about replicas, quotas, users, tokens and ACLs, by API: the part of `requests.py` that is asked for
rarely."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.controller import acls, directories, isr, leader_elections, quotas, reassignments, scram, tokens
from ottla.controller.decision import Decider
from ottla.protocol.messages import ApiKey

DECIDERS: Mapping[int, Decider] = {
    ApiKey.ALTER_PARTITION: lambda image, asked, by: isr.alter_partition(image, asked, by.config),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: lambda image, asked, by: directories.assign_replicas_to_dirs(
        image, asked, by.config
    ),
    ApiKey.ELECT_LEADERS: lambda image, asked, by: leader_elections.elect_leaders(image, asked, by.config),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda image, asked, by: reassignments.alter_reassignments(
        image, asked, by.config
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: lambda image, asked, by: quotas.alter_client_quotas(image, asked),
    ApiKey.CREATE_ACLS: lambda image, asked, by: acls.create_acls(image, asked, by.random),
    ApiKey.DELETE_ACLS: lambda image, asked, by: acls.delete_acls(image, asked),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda image, asked, by: scram.alter_scram_credentials(image, asked),
    ApiKey.STORE_USER_SCRAM_CREDENTIALS: lambda image, asked, by: scram.store_scram_credentials(image, asked),
    ApiKey.CREATE_DELEGATION_TOKEN: tokens.create,
    ApiKey.RENEW_DELEGATION_TOKEN: tokens.renew,
    ApiKey.EXPIRE_DELEGATION_TOKEN: tokens.expire,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda image, asked, by: reassignments.list_reassignments(image, asked),
}
