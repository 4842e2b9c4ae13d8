#!/usr/bin/env python3
"""A driver of ENO in Python: what every driver does on NATS. The device itself is in device.py.

Its environment: ENO_NATS_URL, ENO_NATS_CREDENTIALS (a file with a seed, SU…), ENO_NATS_CA, ENO_INSTANCE, ENO_SCHEMAS.
"""
import asyncio, contextlib, json, logging, math, os, pathlib, re, secrets, signal, ssl, time, urllib.parse
from datetime import datetime, timezone

import jsonschema, nats
from nats.js.errors import APIError

import device

NAME = "json-file"
INSTANCE = os.environ.get("ENO_INSTANCE") or secrets.token_hex(8)
LEASE = 15  # Seconds that a key in ENO_DRIVERS or ENO_OWNERS lives after its last renewal.
POLL = 1  # Seconds between looks at a device that somebody else may change.
RETRY = 5  # Seconds until a failure is tried again.
WRONG_LAST_SEQUENCE = 10071  # JetStream's code of this error.
FORGET = f"eno.v1.forget.{NAME}"
NO_COMMAND = {"generation": {"term": 0, "sequence": 0}}
DELETE = {"KV-Operation": "DEL"}  # The header that deletes a key.
# The headers of a message that a part of ENO, or the end of a key, put into a stream. Others are a server's.
HEADERS = {"Nats-Msg-Id", "Nats-Expected-Stream", "Nats-Expected-Last-Msg-Id", "Nats-Expected-Last-Sequence",
           "Nats-Expected-Last-Subject-Sequence", "Nats-Rollup", "Nats-TTL", "Nats-Marker-Reason", "KV-Operation"}
MAX_TERM_AHEAD = 24 * 3600  # A term is the Unix time at which an engine began to lead. Its clock may be ahead by this.
SCHEMAS = pathlib.Path(os.environ.get("ENO_SCHEMAS") or pathlib.Path(__file__).parents[3] / "schemas/v1")
COMMAND, RESULT = (json.loads((SCHEMAS / f"{name}.json").read_text()) for name in ("command", "result"))
COMMAND, RESULT, GENERATION = (
    jsonschema.Draft202012Validator(schema) for schema in (COMMAND, RESULT, RESULT["$defs"]["Generation"]))
NatsErrors = (nats.errors.Error, asyncio.TimeoutError)
log = logging.getLogger(NAME)


# 1. One target: own it, work on its newest command, report.

class Target:
    def __init__(self, driver, name):
        self.driver, self.name, self.key = driver, name, f"{NAME}.{token(name)}"
        self.command = None  # The newest.
        self.done = self.seen = None  # The command that was reported last, and the device's stamp then.
        self.invalid = None  # A message that is no command: what is wrong, and the message if it has a generation.
        self.stored = None  # The position and content of the last report; None: not known.
        self.lease, self.owned_until, self.retry_at, self.gone = 0, 0.0, math.inf, False
        self.wake, self.released = asyncio.Event(), asyncio.Event()
        self.tasks = [asyncio.create_task(self.keep_lease()), asyncio.create_task(self.work())]

    def is_owned(self):
        return not self.gone and time.monotonic() < self.owned_until

    async def keep_lease(self):
        """The target's key in ENO_OWNERS has the name of the one instance that works on it."""
        subject, me = f"$KV.ENO_OWNERS.{self.key}", INSTANCE.encode()
        while not self.gone:
            with contextlib.suppress(*NatsErrors):
                started, lease = time.monotonic(), await self.driver.put(subject, me, self.lease)
                if lease is None:
                    position, holder = self.driver.owners.get(subject, (0, b""))
                    # Empty: it was released or has expired. Ours: from before a restart, or the answer was lost. Of
                    # JSON: a server's answer took the place of a name, which only the holder may write again at once.
                    may_take = holder in (b"", me) or holder.startswith(b"{") and self.is_owned()
                    lease = await self.driver.put(subject, me, position) if may_take else None
                if not self.is_owned():
                    self.done = self.stored = None  # Another instance may have worked on it meanwhile.
                self.lease, self.owned_until = lease or 0, started + LEASE if lease else 0.0
                self.wake.set()
            await wait(self.released, LEASE / 4)

    async def release(self):
        """Leaves the target once work in flight has ended. Instances that wait for it see the key go."""
        self.gone = True
        self.wake.set()
        self.released.set()
        await asyncio.gather(*self.tasks)
        with contextlib.suppress(*NatsErrors):
            if self.lease:
                await self.driver.put(f"$KV.ENO_OWNERS.{self.key}", b"", self.lease, DELETE)

    async def work(self):
        while not self.gone:
            await wait(self.wake, POLL)
            try:
                if self.is_owned():
                    await self.work_once()
            except Exception as error:  # NATS is away, or this driver has a bug. The next round tries again.
                log.warning("%s: %r", self.name, error)

    async def work_once(self):
        self.stored = self.stored or await self.driver.stored_report(self.name)
        command, last, is_retry = self.command, self.stored[1], time.monotonic() >= self.retry_at
        if self.invalid:
            (reason, message), self.invalid = self.invalid, None
            if order(message) < order(last) or not message:  # Without a hash, it is about none of our commands.
                message = {"generation": {**(last or NO_COMMAND)["generation"], "hash": ""}}
            await self.publish({**failed(reason), "generation": message["generation"]})
        if not command or command == self.done and device.stamp(command["desired"]) == self.seen and not is_retry:
            return
        if order(command) < order(last):
            log.warning("%s: ignoring a command that is older than the last report", self.name)
            self.done, self.seen = command, device.stamp(command["desired"])
            return
        same = bool(last) and last["generation"]["hash"] == command["generation"]["hash"]
        was_applied = same and last["outcome"]["status"] == "applied" and not last.get("rejected")
        try:  # In a thread: a device may take long to answer, and leases have to be renewed.
            report = await asyncio.to_thread(
                device.reconcile, command["desired"], was_applied, lambda: self.is_owned() and self.command is command)
        except OSError as error:  # No answer says nothing about the command.
            report = failed(f"the device can't be reached: {error}", retryable=True, unreachable=True)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            report = failed(f"the device can't be read: {error!r}", retryable=True)
        if report:
            self.seen = device.stamp(command["desired"])
            self.retry_at = time.monotonic() + RETRY if report["outcome"].get("retryable") else math.inf
            await self.publish({**report, "generation": command["generation"]})
            self.done = command

    async def publish(self, report):
        """Replaces the stored report, unless that is newer or says the same."""
        at = datetime.now(timezone.utc).isoformat()
        report = {"driver": NAME, "target": self.name, "instance": INSTANCE, "at": at, **report}
        RESULT.validate(report)
        position, last = self.stored
        if order(last) <= order(report) and {**(last or {}), "at": at} != report:
            self.stored = None  # Not known until it is acknowledged.
            data = json.dumps(report).encode()
            position = await self.driver.put(f"eno.v1.result.{self.key}", data, position)
            if position is None:
                raise ValueError("another report came between, or the target is gone")
            self.stored = (position, report)
            await self.driver.stream.publish(f"eno.v1.history.{self.key}", data)


# 2. The process: connect, announce itself, read commands.

class Driver:
    async def run(self):
        self.targets, self.owners, self.background, stop, options = {}, {}, set(), asyncio.Event(), {}
        if file := os.environ.get("ENO_NATS_CREDENTIALS"):
            options["nkeys_seed_str"] = pathlib.Path(file).read_text().strip()
        if file := os.environ.get("ENO_NATS_CA"):
            options["tls"] = ssl.create_default_context(cafile=file)
        self.nats = await nats.connect(  # The permissions of deploy/nats are for this prefix.
            os.environ.get("ENO_NATS_URL", "nats://127.0.0.1:4222").split(","), name=f"eno-driver-{NAME}",
            inbox_prefix=f"_INBOX_eno-driver-{NAME}", max_reconnect_attempts=-1, ping_interval=5, **options)
        self.stream = self.nats.jetstream()
        await self.nats.subscribe(FORGET, cb=self.on_forget)
        tasks = [asyncio.create_task(task()) for task in (self.announce, self.read_owners, self.read_commands)]
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*(target.release() for target in self.targets.values()))
        await self.put(f"$KV.ENO_DRIVERS.{NAME}.{token(INSTANCE)}", b"", headers=DELETE)
        await self.nats.close()  # Each message was acknowledged, so none has to be drained.

    async def announce(self):
        hello = {"driver": NAME, "instance": INSTANCE, "version": "1", "kinds": ["fabric"], "capabilities": []}
        while True:
            pause = LEASE / 3
            now = {**hello, "at": datetime.now(timezone.utc).isoformat()}
            try:
                await self.put(f"$KV.ENO_DRIVERS.{NAME}.{token(INSTANCE)}", json.dumps(now).encode())
            except NatsErrors as error:  # The engine makes the buckets and streams.
                log.info("waiting for NATS and the engine: %r", error)
                pause = 0.5
            await asyncio.sleep(pause)

    async def read_commands(self):
        """The last command of each target, then new ones."""
        while True:
            missing = set(self.targets)
            with self.anew("the commands"):
                async with contextlib.aclosing(self.read("ENO_COMMANDS", f"eno.v1.command.{NAME}.*")) as messages:
                    async for message, are_all in messages:
                        if message and not is_removal(message):
                            missing.discard(self.on_message(message, message.headers or {}))
                        while are_all and missing:
                            self.forget(missing.pop())  # A target without a command is gone for good.
            await asyncio.sleep(0.5)
            for target in self.targets.values():
                target.done = target.stored = None  # Reports may be lost, too.

    async def read_owners(self):
        """Who works on each target. A target that nobody works on is taken at once."""
        while True:
            self.owners.clear()
            with self.anew("the owners"):
                async with contextlib.aclosing(self.read("KV_ENO_OWNERS", f"$KV.ENO_OWNERS.{NAME}.*")) as messages:
                    async for message, _ in messages:
                        if message:
                            holder = b"" if is_removal(message) else message.data
                            self.owners[message.subject] = (message.metadata.sequence.stream, holder)
                            target = self.targets.get(name_of(message.subject))
                            if target and target.is_owned() == holder.startswith(b"{"):
                                target.released.set()
            await asyncio.sleep(0.5)

    @contextlib.contextmanager
    def anew(self, what):
        try:
            yield
        except Exception as error:
            log.warning("reading %s anew: %r", what, error)

    async def read(self, stream, subjects):
        """Yields the last message of each subject, then new ones, each with whether all stored ones were read."""
        # Pushed to our own inbox: a pull consumer gives its messages to any client that knows its name.
        messages, inbox, seconds = asyncio.Queue(), self.nats.new_inbox(), 10**9
        name, subscription = inbox.split(".")[-1], await self.nats.subscribe(inbox, cb=messages.put)
        request = {"stream_name": stream, "config": {
            "name": name, "deliver_subject": inbox, "deliver_policy": "last_per_subject", "filter_subject": subjects,
            "ack_policy": "none", "replay_policy": "instant", "mem_storage": True, "num_replicas": 1,
            "idle_heartbeat": 5 * seconds, "inactive_threshold": 5 * seconds}}
        try:
            answer = json.loads((await self.nats.request(
                f"$JS.API.CONSUMER.CREATE.{stream}.{name}.{subjects}", json.dumps(request).encode(), timeout=5)).data)
            if "error" in answer:
                raise ValueError(answer["error"]["description"])
            count, waiting = 0, answer["num_pending"]
            yield None, waiting == 0
            while True:
                message = await asyncio.wait_for(messages.get(), LEASE)  # Without a heartbeat, the consumer is gone.
                # A heartbeat has no position. A stored message may look like one otherwise.
                is_stored = message.reply.startswith(f"$JS.ACK.{stream}.{name}.")
                count += is_stored
                last = message.metadata.sequence.consumer if is_stored else (message.headers or {})["Nats-Last-Consumer"]
                if count != int(last):
                    raise ValueError("a message was lost")
                if is_stored:
                    waiting = min(max(waiting - 1, 0), message.metadata.num_pending)
                    yield message, waiting == 0
        finally:
            with contextlib.suppress(*NatsErrors):  # An error here would hide that the task is cancelled.
                await subscription.unsubscribe()

    def on_message(self, message, headers):
        name = name_of(message.subject)
        target, command = self.targets.get(name) or self.targets.setdefault(name, Target(self, name)), None
        try:
            command = json.loads(message.data)
            check(command, message, headers, name)
            if order(command) > order(target.command):
                target.command = command
        except ValueError as error:
            log.warning("%s: ignoring a message that is no command: %s", name, error)
            has_generation = isinstance(command, dict) and GENERATION.is_valid(command.get("generation")) \
                and command["generation"]["term"] <= time.time() + MAX_TERM_AHEAD
            target.invalid = (str(error), command if has_generation else None)
        target.wake.set()
        return name

    async def on_forget(self, message):
        name = message.data.decode(errors="replace")
        _, command = await self.last("ENO_COMMANDS", f"eno.v1.command.{NAME}.{token(name)}")
        if not command and name in self.targets:
            self.forget(name)

    def forget(self, name):
        task = asyncio.create_task(self.targets.pop(name).release())
        self.background.add(task)  # asyncio keeps no reference.
        task.add_done_callback(self.background.discard)

    async def put(self, subject, data, last=None, headers=()):
        """Stores a message; with `last`, only if that is the position of its subject's last one, else returns None."""
        expected = {} if last is None else {"Nats-Expected-Last-Subject-Sequence": str(last)}
        try:
            return (await self.stream.publish(subject, data, headers={**expected, **dict(headers)})).seq
        except APIError as error:
            if error.err_code != WRONG_LAST_SEQUENCE:
                raise

    async def last(self, stream, subject):
        """The position and the data of a subject's last message."""
        found = 0, b""
        async with contextlib.aclosing(self.read(stream, subject)) as messages:
            async for message, are_all in messages:
                if message:
                    found = message.metadata.sequence.stream, b"" if is_removal(message) else message.data
                if are_all:
                    return found

    async def stored_report(self, name):
        position, data = await self.last("ENO_RESULTS", f"eno.v1.result.{NAME}.{token(name)}")
        with contextlib.suppress(ValueError):
            report = json.loads(data)
            return position, report if RESULT.is_valid(report) else None
        return position, None


# 3. Messages.

def check(command, message, headers, target):
    """Raises a ValueError that says what is wrong with a command and where."""
    if foreign := set(headers) - HEADERS:
        raise ValueError(f"the message has the header {foreign.pop()}: a NATS server sent it, and not the engine")
    if isinstance(command, dict) and command.get("schemaVersion", 1) != 1:
        raise ValueError(f"the command is of version {command['schemaVersion']}, and this driver reads version 1")
    if error := next(COMMAND.iter_errors(command), None):
        # Of the alternatives of a oneOf, the one of this kind says what is wrong.
        other = {part.schema_path[0] for part in error.context if list(part.path) == ["kind"]}
        error = next((part for part in error.context if part.schema_path[0] not in other), error)
        path = "/".join(str(part) for part in error.absolute_path)
        raise ValueError(f"the command breaks its schema at /{path}: {error.message}")
    if (command["driver"], command["target"]) != (NAME, target):
        raise ValueError(f"the command for {command['target']} of {command['driver']} came on {message.subject}")
    if command["generation"]["term"] > time.time() + MAX_TERM_AHEAD:
        raise ValueError(f"its term {command['generation']['term']} is more than a day ahead, so no engine issued it")
    if command["desired"]["kind"] != "fabric" or command.get("transaction"):
        raise ValueError("this driver configures switches only, and can't hold a change for a transaction")


def is_removal(message):
    return not message.data or bool({"KV-Operation", "Nats-Marker-Reason"} & set(message.headers or {}))


def name_of(subject):
    """The name in the last token of a subject."""
    return urllib.parse.unquote(subject.split(".")[-1].replace("=", "%"))


def order(message):
    return (message["generation"]["term"], message["generation"]["sequence"]) if message else (-1, -1)


def failed(reason, retryable=False, unreachable=False):
    return {"outcome": {"status": "failed", "reason": reason, "retryable": retryable, "unreachable": unreachable}}


def token(name):
    """A name as one token of a subject or key: bytes outside [A-Za-z0-9_-] are written =HH."""
    return re.sub(rb"[^A-Za-z0-9_-]", lambda byte: b"=%02X" % ord(byte[0]), name.encode()).decode()


async def wait(event, seconds):
    """Waits until the event is set, at most so long, and clears it."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    event.clear()


if __name__ == "__main__":
    logging.basicConfig(level=os.environ.get("ENO_LOG", "info").upper(), format="%(levelname)s %(message)s")
    asyncio.run(Driver().run())
