"""Programs that administer the cluster while others work."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from tests.simulation.calls import Caller, InterruptedCall
from tests.simulation.scenario import Draft
from tests.simulation.workloads.base import Workload

_EXISTS = 36
_KNOWS_NOTHING = 3


class AdminWorkload(Workload):
    """One admin client, which changes topics of its own and looks at everything."""

    kind = "admin"
    rank = 0

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """How much, how fast."""
        source = draft.random
        return {
            "prefix": f"admin{len(draft.workloads)}",
            "client": {
                "request_timeout_ms": source.choice((2000, 5000, 40_000)),
                "metadata_max_age_ms": source.choice((2000, 300_000)),
            },
            "calls": source.choice((5, 10, 30)),
            "replicas": min(draft.cluster.brokers, source.choice((1, 3))),
            "cancel_rate": source.choice((0, 0, 0.05, 0.3)),
            "restart_rate": source.choice((0, 0, 0.1)),
        }

    async def run(self) -> None:
        """Calls until all is calm, then those that must work."""
        options, world = self.options, self.world
        pace = world.scenario.active_s / options["calls"]
        caller = Caller(world, self.plan.name, options["cancel_rate"])
        while not world.calm.is_set():
            program = AdminProgram(self, caller)
            if await program.start():
                while not world.calm.is_set() and not caller.chance(options["restart_rate"]):
                    await program.act()
                    await world.until_calm(caller.random.expovariate(1 / pace))
            await program.stop()
            await world.until_calm(1.0)
        await self._see_that_it_works()

    async def _see_that_it_works(self) -> None:
        caller = Caller(self.world, self.plan.name + " at the end")
        deadline = self.world.calm_at + self.recovery_s
        done = False
        while not done:
            program = AdminProgram(self, caller)
            done = await program.start() and await program.work()
            await program.stop()
            if not done and self.world.now > deadline:
                text = f"{caller.name}: calls fail although all faults are over: "
                self.world.violate("no recovery", text + repr(program.last_error))
                return
            await self.world.until_calm(1.0)


class AdminProgram:
    """One admin client and what is done with it."""

    def __init__(self, workload: AdminWorkload, caller: Caller) -> None:
        self.world = workload.world
        self.caller = caller
        self.options = workload.options
        self.last_error: BaseException | None = None
        self._timeout = self.options["client"]["request_timeout_ms"] / 1000
        self._admin = AIOKafkaAdminClient(
            bootstrap_servers=self.world.bootstrap,
            client_id=caller.name.replace(" ", "-"),
            **self.options["client"],
        )

    async def start(self) -> bool:
        """Start it; whether that worked."""
        return await self._try("start", self._admin.start()) is not _FAILED

    async def stop(self) -> None:
        """Close it."""
        for _ in range(20):
            if await self._try("close", self._admin.close()) is not _FAILED:
                return
        await self._admin.close()

    async def _try(self, what: str, call: Awaitable[Any]) -> Any:
        try:
            return await self.caller.call(what, call, limit=self._timeout)
        except (KafkaError, InterruptedCall) as error:
            self.last_error = error
            return _FAILED

    async def act(self) -> None:
        """One call."""
        admin, source = self._admin, self.caller.random
        name = f"{self.options['prefix']}-{source.randrange(3)}"
        tp = TopicPartition(name, 0)
        groups = [
            w.options["group_id"] for w in self.world.scenario.workloads if "group_id" in w.options
        ]
        group = source.choice(groups) if groups else "nobody's"
        new = NewTopic(name, source.choice((1, 3)), self.options["replicas"])
        calls: list[tuple[str, Any]] = [
            (f"create_topics({name})", lambda: admin.create_topics([new])),
            (f"delete_topics({name})", lambda: admin.delete_topics([name])),
            (f"create_partitions({name})", lambda: admin.create_partitions({name: 5})),
            (
                f"delete_records({name})",
                lambda: admin.delete_records({tp: RecordsToDelete(before_offset=0)}),
            ),
            ("list_topics", admin.list_topics),
            ("describe_topics", admin.describe_topics),
            ("describe_cluster", admin.describe_cluster),
            ("list_consumer_groups", admin.list_consumer_groups),
            (f"find_coordinator({group})", lambda: admin.find_coordinator(group)),
            (
                f"list_consumer_group_offsets({group})",
                lambda: admin.list_consumer_group_offsets(group),
            ),
            (
                f"describe_consumer_groups({group})",
                lambda: admin.describe_consumer_groups([group]),
            ),
        ]
        what, call = source.choice(calls)
        await self._try(what, call())

    async def work(self) -> bool:
        """What a program does with a topic from its creation to its end; whether all worked."""
        name = self.options["prefix"] + "-last"
        admin, state = self._admin, self.world.cluster.state
        new = NewTopic(name, 2, self.options["replicas"])
        created = await self._try(f"create_topics({name})", admin.create_topics([new]))
        if created is _FAILED or not self._is_fine(created, _EXISTS):
            return False
        if name not in state.topics:
            self.world.violate("not created", f"{self.caller.name}: {name} is not there")
        listed = await self._try("list_topics", admin.list_topics())
        missing = set() if listed is _FAILED else set(state.topics) - set(listed)
        if listed is _FAILED or missing:
            self.last_error = KafkaError(f"topics are not listed: {missing}")
            return False
        deleted = await self._try(f"delete_topics({name})", admin.delete_topics([name]))
        if deleted is _FAILED or not self._is_fine(deleted, _KNOWS_NOTHING):
            return False
        if name in state.topics:
            self.world.violate("not deleted", f"{self.caller.name}: {name} is still there")
        return await self._look_at_groups()

    async def _look_at_groups(self) -> bool:
        for workload in self.world.scenario.workloads:
            group = workload.options.get("group_id")
            if group is None:
                continue
            call = self._admin.list_consumer_group_offsets(group)
            what = f"list_consumer_group_offsets({group})"
            if await self._try(what, call) is _FAILED:
                return False
        return True

    def _is_fine(self, result: Any, allowed: int) -> bool:
        """Whether each topic of a result was changed, perhaps by a call whose response was lost."""
        codes = [code for _, code, *_ in result.topic_errors]
        self.last_error = KafkaError(f"topic errors {codes}")
        return all(code in (0, allowed) for code in codes)


_FAILED = object()
