"""Compatibility module, an import path of aiokafka 0.14: topics, configurations, groups and
more."""

from aiokafka._upstream.requests import *
from aiokafka._upstream.requests import __getattr__ as __getattr__

__all__ = [
    "AlterConfigsRequest",
    "AlterPartitionReassignmentsRequest",
    "ApiVersionRequest",
    "CreateAclsRequest",
    "CreatePartitionsRequest",
    "CreateTopicsRequest",
    "DeleteAclsRequest",
    "DeleteGroupsRequest",
    "DeleteRecordsRequest",
    "DeleteTopicsRequest",
    "DescribeAclsRequest",
    "DescribeClientQuotasRequest",
    "DescribeConfigsRequest",
    "DescribeGroupsRequest",
    "ListGroupsRequest",
    "ListPartitionReassignmentsRequest",
    "SaslAuthenticateRequest",
    "SaslHandShakeRequest",
]
