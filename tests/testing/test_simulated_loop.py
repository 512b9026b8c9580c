"""The simulated loop: virtual time, what ends a run, and what it refuses."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from aiokafka import _clock
from aiokafka._compat import timeout
from aiokafka.testing.simulation import (
    BusyLoopError,
    NotSimulatedError,
    Simulation,
    SimulationError,
    StuckError,
    VirtualTimeError,
    simulate,
)


def run(
    main: Callable[[Simulation], Awaitable[Any]], seed: int = 0, limit_s: float = 3600.0
) -> Any:
    return simulate(main, seed=seed, limit_s=limit_s)  # type: ignore[arg-type]


# -- time


async def test_it_is_another_loop_than_that_of_an_ordinary_test() -> None:
    """A run inside of a loop is refused, and leaves nothing behind that was never awaited."""

    async def main(simulation: Simulation) -> None:
        raise AssertionError("it must not run")

    with pytest.raises(RuntimeError, match="outside of async functions"):
        run(main)


def test_waiting_takes_virtual_time_only() -> None:
    async def main(simulation: Simulation) -> list[float]:
        loop = asyncio.get_running_loop()
        marks = [loop.time()]
        await asyncio.sleep(1000)
        marks.append(loop.time())
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(loop.create_future(), 500)
        marks.append(loop.time())
        with pytest.raises(asyncio.TimeoutError):
            async with timeout(7):
                await loop.create_future()
        marks.append(loop.time())
        return marks

    start, slept, waited, timed = run(main)
    assert start < 0.01
    assert slept == pytest.approx(1000, abs=0.001)
    assert waited == pytest.approx(1500, abs=0.002)
    assert timed == pytest.approx(1507, abs=0.003)


def test_a_year_goes_by_and_no_timer_is_early() -> None:
    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(366):
            due = loop.time() + 86_400
            await asyncio.sleep(86_400)
            assert due <= loop.time() < due + 0.001

    run(main, limit_s=4e7)


def test_timers_go_off_in_the_order_of_their_times() -> None:
    async def main(simulation: Simulation) -> list[int]:
        loop = asyncio.get_running_loop()
        seen: list[int] = []
        for number in (5, 3, 9, 1, 7):
            loop.call_at(number, seen.append, number)
        cancelled = loop.call_later(4, seen.append, 4)
        assert [round(timer.when()) for timer in simulation.loop.timers()] == [1, 3, 4, 5, 7, 9]
        cancelled.cancel()
        assert len(simulation.loop.timers()) == 5
        await asyncio.sleep(10)
        return seen

    assert run(main) == [1, 3, 5, 7, 9]


def test_timers_of_one_moment_go_off_in_the_order_of_the_seed() -> None:
    async def main(simulation: Simulation) -> tuple[int, ...]:
        loop = asyncio.get_running_loop()
        seen: list[int] = []
        for number in range(4):
            loop.call_at(1, seen.append, number)
        await asyncio.sleep(2)
        assert sorted(seen) == [0, 1, 2, 3]
        return tuple(seen)

    orders = [run(main, seed) for seed in range(20)]
    assert orders == [run(main, seed) for seed in range(20)]
    assert len(set(orders)) > 5


def test_events_come_after_what_is_ready_and_before_timers() -> None:
    """As with sockets: asyncio asks them first, and then looks at its timers."""

    async def main(simulation: Simulation) -> list[str]:
        loop = simulation.loop
        seen: list[str] = []
        now = loop.time()
        loop.call_at(now, seen.append, "timer")
        loop.happen_at(now, seen.append, "event")
        loop.call_soon(seen.append, "ready")
        await asyncio.sleep(0.1)
        return seen

    assert run(main) == ["ready", "event", "timer"]


def test_an_event_that_fails_is_reported_like_a_callback() -> None:
    async def main(simulation: Simulation) -> list[Any]:
        loop = simulation.loop
        reported: list[Any] = []
        loop.set_exception_handler(lambda loop, context: reported.append(context["exception"]))
        loop.happen_at(1, int, "no number")
        await asyncio.sleep(2)
        return reported

    (error,) = run(main)
    assert isinstance(error, ValueError)


def test_stalls_make_timers_late_but_never_early() -> None:
    async def main(simulation: Simulation) -> list[float]:
        loop = simulation.loop
        late = []
        loop.stall(0.5, 2.0)
        for _ in range(50):
            due = loop.time() + 1
            await asyncio.sleep(1)
            late.append(loop.time() - due)
        loop.stall(0, 0)
        before = loop.time()
        await asyncio.sleep(1)
        assert loop.time() - before < 1.001
        return late

    late = run(main)
    assert min(late) >= 0
    assert max(late) > 0.5
    assert sum(1 for delay in late if delay < 0.001) > 10


def test_the_time_of_day_goes_with_the_loop_and_comes_back() -> None:
    before = _clock.wall_time, _clock.random_bytes

    async def main(simulation: Simulation) -> tuple[float, bytes]:
        first = _clock.wall_time()
        await asyncio.sleep(60)
        assert _clock.wall_time() == pytest.approx(first + 60, abs=0.01)
        return first, _clock.random_bytes(4)

    first = run(main, seed=1)
    assert first[0] == pytest.approx(1_700_000_000, abs=1)
    assert first == run(main, seed=1)
    assert first != run(main, seed=2)
    assert (_clock.wall_time, _clock.random_bytes) == before


# -- how runs end


def test_a_run_in_which_nothing_can_happen_says_who_waits_where() -> None:
    async def forgotten() -> None:
        await asyncio.get_running_loop().create_future()

    async def main(simulation: Simulation) -> None:
        await asyncio.gather(
            asyncio.create_task(forgotten(), name="poor"), asyncio.create_task(forgotten())
        )

    with pytest.raises(StuckError, match=r"seed 3\)") as failure:
        run(main, seed=3)
    lines = str(failure.value).splitlines()
    assert lines[1].strip().startswith("main: main, test_simulated_loop.py:")
    assert lines[2].strip().startswith("poor: forgotten, test_simulated_loop.py:")
    assert lines[3].strip().startswith("Task-3: forgotten, ")


def test_a_run_has_a_limit_of_virtual_time() -> None:
    async def main(simulation: Simulation) -> None:
        while True:
            await asyncio.sleep(10)

    with pytest.raises(VirtualTimeError, match=r"not at its end after 100.0 s of virtual time"):
        run(main, limit_s=100)


def test_a_task_that_spins_is_named() -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    async def heartbeat() -> None:
        while True:
            await asyncio.sleep(0.003)

    async def main(simulation: Simulation) -> None:
        spinning = asyncio.create_task(spin(), name="the-spinner")
        beating = asyncio.create_task(heartbeat())
        await asyncio.wait([spinning, beating])

    with pytest.raises(BusyLoopError, match=r"called most often .*: task the-spinner of .*spin \("):
        run(main)


def test_two_tasks_that_wake_each_other_are_named() -> None:
    async def main(simulation: Simulation) -> None:
        mine, yours = asyncio.Event(), asyncio.Event()

        async def play(own: asyncio.Event, other: asyncio.Event) -> None:
            while True:
                await own.wait()
                own.clear()
                other.set()

        mine.set()
        await asyncio.gather(
            asyncio.create_task(play(mine, yours), name="ping"),
            asyncio.create_task(play(yours, mine), name="pong"),
        )

    with pytest.raises(BusyLoopError, match=r"task ping of ") as failure:
        run(main)
    assert "task pong of " in str(failure.value)


def test_callbacks_that_follow_each_other_are_named() -> None:
    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()

        def again_and_again() -> None:
            loop.call_soon(again_and_again)

        again_and_again()
        await loop.create_future()

    with pytest.raises(BusyLoopError, match="again_and_again"):
        run(main)


def test_many_busy_tasks_are_not_a_busy_loop() -> None:
    """In each turn some of them has something to do, and none in all."""

    async def work(simulation: Simulation) -> None:
        for _ in range(100):
            await asyncio.sleep(simulation.random.random() * 0.01)
            await asyncio.sleep(0)

    async def main(simulation: Simulation) -> int:
        before = simulation.loop.turns
        await asyncio.gather(*(work(simulation) for _ in range(400)))
        return simulation.loop.turns - before

    assert run(main) > 20_000


def test_a_failure_comes_out_and_what_is_left_is_cancelled() -> None:
    ended: list[str] = []

    async def wait(name: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(1)
            ended.append(name)

    async def main(simulation: Simulation) -> None:
        for name in ("b", "a", "c"):
            simulation.loop.create_task(wait(name), name=name)
        await asyncio.sleep(0.1)
        raise ValueError("on purpose")

    simulation = Simulation()
    with pytest.raises(ValueError, match="on purpose"):
        simulation.run(main(simulation))
    assert sorted(ended) == ["a", "b", "c"]
    assert simulation.loop.is_closed()


def test_a_stuck_program_runs_its_finally_blocks_in_its_own_task() -> None:
    seen: list[Any] = []

    async def main(simulation: Simulation) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(0.1)
            task = asyncio.current_task()
            seen.append(task and task.get_name())

    with pytest.raises(StuckError):
        run(main)
    assert seen == ["main"]


def test_a_task_that_refuses_to_end_does_not_keep_the_run() -> None:
    async def stubborn() -> None:
        for _ in range(1000):
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass

    async def main(simulation: Simulation) -> str:
        tasks.append(asyncio.create_task(stubborn()))
        await asyncio.sleep(0)
        return "done"

    tasks: list[Any] = []
    assert run(main) == "done"
    # Else the interpreter complains of a task that was never looked at.
    tasks[0]._log_destroy_pending = False
    tasks[0].get_coro().close()


def test_async_generators_are_closed_at_the_end() -> None:
    closed = []

    async def numbers() -> Any:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0.1)
            closed.append(True)

    async def main(simulation: Simulation) -> int:
        left.append(numbers())
        return int(await left[0].__anext__())

    left: list[Any] = []
    assert run(main) == 1
    assert closed == [True]


def test_a_simulation_runs_once() -> None:
    async def main() -> int:
        return 1

    simulation = Simulation()
    assert simulation.run(main()) == 1
    with pytest.raises(RuntimeError, match="runs once"):
        simulation.run(main())


def test_a_run_inside_of_a_run_is_refused_and_the_outer_one_goes_on() -> None:
    async def inner(simulation: Simulation) -> None:
        raise AssertionError("it must not run")

    async def main(simulation: Simulation) -> bytes:
        with pytest.raises(RuntimeError, match="outside of async functions"):
            simulate(inner, seed=5)
        await asyncio.sleep(1)
        return _clock.random_bytes(2)

    assert len(run(main)) == 2


# -- tasks


def test_tasks_without_a_name_are_counted_in_their_loop() -> None:
    async def nothing() -> None:
        pass

    async def main(simulation: Simulation) -> list[str]:
        tasks = [asyncio.create_task(nothing()) for _ in range(11)]
        assert simulation.loop.tasks()[1:] == tasks
        await asyncio.wait(tasks)
        return [task.get_name() for task in tasks]

    names = run(main)
    assert names[0] == "Task-2"
    assert names == run(main)


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="Python 3.12 has them")
def test_eager_tasks_run_at_once() -> None:
    seen = []

    async def eager() -> None:
        seen.append("began")
        await asyncio.sleep(1)
        seen.append("ended")

    async def main(simulation: Simulation) -> None:
        simulation.loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        task = asyncio.create_task(eager())
        assert seen == ["began"]
        assert simulation.loop.tasks()[-1] is task
        await task

    run(main)
    assert seen == ["began", "ended"]


# -- threads


def test_work_for_threads_is_done_in_the_loop_a_moment_later() -> None:
    async def main(simulation: Simulation) -> Any:
        loop = asyncio.get_running_loop()
        seen: list[int] = []
        thread = threading.get_ident()
        future = loop.run_in_executor(None, seen.append, 1)
        assert not seen
        await future
        assert seen == [1]
        assert await asyncio.to_thread(threading.get_ident) == thread
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 / 0)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await loop.run_in_executor(None, next, iter(()))
        return loop.time()

    assert 0 < run(main) < 0.1


def test_results_of_threads_come_in_any_order_and_work_begins_in_order() -> None:
    async def main(simulation: Simulation) -> tuple[list[int], list[int]]:
        loop = asyncio.get_running_loop()
        begun: list[int] = []
        ended: list[int] = []

        async def one(number: int) -> None:
            await loop.run_in_executor(None, begun.append, number)
            ended.append(number)

        await asyncio.gather(*map(one, range(5)))
        return begun, ended

    runs = [run(main, seed) for seed in range(20)]
    assert all(begun == [0, 1, 2, 3, 4] for begun, _ in runs)
    assert len({tuple(ended) for _, ended in runs}) > 3


def test_an_executor_with_one_thread_keeps_its_order() -> None:
    async def main(simulation: Simulation) -> list[int]:
        loop = asyncio.get_running_loop()
        ended: list[int] = []

        async def one(number: int) -> None:
            await loop.run_in_executor(executor, int, number)
            ended.append(number)

        await asyncio.gather(*map(one, range(5)))
        return ended

    with ThreadPoolExecutor(1) as executor:
        for seed in range(20):
            assert run(main, seed) == [0, 1, 2, 3, 4]


def test_cancelled_work_of_threads_may_be_done_all_the_same() -> None:
    async def main(simulation: Simulation) -> bool:
        seen: list[int] = []
        task = asyncio.ensure_future(asyncio.to_thread(seen.append, 1))
        await asyncio.sleep(0.0007)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(1)
        assert task.cancelled() or seen == [1]
        return bool(seen) and task.cancelled()

    assert {run(main, seed) for seed in range(30)} == {True, False}


def test_threads_may_not_call_into_the_loop() -> None:
    refused: list[BaseException] = []

    def call(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        try:
            loop.call_soon_threadsafe(future.set_result, None)
        except SimulationError as error:
            refused.append(error)

    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        thread = threading.Thread(target=call, args=(loop, future), name="stranger")
        thread.start()
        thread.join()
        await future

    with pytest.raises(StuckError, match="stranger"):
        run(main)
    (error,) = refused
    assert isinstance(error, NotSimulatedError)
    assert "to_thread" in str(error)


def test_call_soon_threadsafe_from_the_loop_itself() -> None:
    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(100_000 // 100):
            done: asyncio.Future[None] = loop.create_future()
            loop.call_soon_threadsafe(done.set_result, None)
            await done

    run(main)


def test_signals_are_sent_by_the_test() -> None:
    async def main(simulation: Simulation) -> None:
        loop = simulation.loop
        stopped = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stopped.set)
        loop.call_later(5, loop.send_signal, signal.SIGTERM)
        await stopped.wait()
        assert loop.remove_signal_handler(signal.SIGTERM)
        assert not loop.remove_signal_handler(signal.SIGTERM)
        with pytest.raises(LookupError):
            loop.send_signal(signal.SIGTERM)

    run(main)


# -- what is not simulated


async def _on_a_socket(method: str) -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as sock:
        sock.setblocking(False)
        result = getattr(loop, method)(sock, b"" if method == "sock_sendall" else 1)
        await result


REFUSED: dict[str, Callable[[], Awaitable[Any]]] = {
    "subprocess": lambda: asyncio.create_subprocess_exec("true"),
    "shell": lambda: asyncio.create_subprocess_shell("true"),
    "datagrams": lambda: asyncio.get_running_loop().create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    ),
    "unix connection": lambda: asyncio.get_running_loop().create_unix_connection(
        asyncio.Protocol, "/tmp/none"
    ),
    "unix server": lambda: asyncio.get_running_loop().create_unix_server(
        asyncio.Protocol, "/tmp/none"
    ),
    "read pipe": lambda: asyncio.get_running_loop().connect_read_pipe(asyncio.Protocol, None),
    "sock_connect": lambda: _on_a_socket("sock_connect"),
    "sock_recv": lambda: _on_a_socket("sock_recv"),
    "sock_sendall": lambda: _on_a_socket("sock_sendall"),
    "sock_accept": lambda: asyncio.get_running_loop().sock_accept(None),  # type: ignore[arg-type]
    "connection on a socket": lambda: asyncio.open_connection(sock=object()),  # type: ignore[arg-type]
    "server on a socket": lambda: asyncio.start_server(lambda r, w: None, sock=object()),  # type: ignore[arg-type, call-overload]
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_leaves_the_process_is_refused_with_advice(what: str) -> None:
    async def main(simulation: Simulation) -> str:
        with pytest.raises(NotSimulatedError) as failure:
            await REFUSED[what]()
        return str(failure.value)

    said = run(main)
    assert said.startswith("a simulated loop has no ")
    assert "in this test" in said or "in the same test" in said


def test_readers_of_files_are_refused() -> None:
    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        for add in (loop.add_reader, loop.add_writer):
            with pytest.raises(NotSimulatedError):
                add(0, print)

    run(main)


# -- the same again


@pytest.mark.parametrize("seed", range(3))
def test_the_trace_tells_runs_apart(seed: int) -> None:
    async def main(simulation: Simulation) -> None:
        for _ in range(5):
            await asyncio.sleep(simulation.random.random())

    def trace(seed: int) -> str:
        simulation = Simulation(seed)
        simulation.run(main(simulation))
        return simulation.trace

    assert trace(seed) == trace(seed) != trace(seed + 1)
