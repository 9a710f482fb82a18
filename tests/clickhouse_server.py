"""A ClickHouse server as a process of its own, in a folder of its own, on free ports.

It is stopped, killed and started again as tests need it; its data stays. Where the program is not installed, a test is
skipped: `apt-get install clickhouse-server`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import patient, until

from barograph.store.clickhouse.address import ServerAddress, parse_address
from barograph.store.clickhouse.client import Client, ServerError
from barograph.store.clickhouse.migrate import migrate
from barograph.store.clickhouse.schema import behind

PASSWORD = "pass/wörd:1"
READER_PASSWORD = "only-reads"
# a server whose session ends while tables are made may never again heed what is to be done on the whole cluster
SESSION_MS = 120_000
WHOLE_CLUSTER_SECONDS = 60  # that a statement for the whole cluster may take

_CONFIG = """<?xml version="1.0"?>
<yandex>
  <logger><level>warning</level><log>{folder}/server.log</log><errorlog>{folder}/errors.log</errorlog></logger>
  <http_port>{port}</http_port><tcp_port>{tcp}</tcp_port><listen_host>127.0.0.1</listen_host>
  <path>{folder}/data/</path><tmp_path>{folder}/tmp/</tmp_path><mark_cache_size>67108864</mark_cache_size>
  <users_config>{folder}/users.xml</users_config>
  <default_profile>default</default_profile><default_database>default</default_database>
  {more}
</yandex>
"""
_USERS = """<?xml version="1.0"?>
<yandex>
  <profiles>
    <default><max_memory_usage>2000000000</max_memory_usage>
      <distributed_ddl_task_timeout>{seconds}</distributed_ddl_task_timeout></default>
    <reading><readonly>1</readonly></reading></profiles>
  <users>
    <writer><password>{password}</password><networks><ip>::/0</ip></networks>
      <profile>default</profile><quota>default</quota></writer>
    <reader><password>{reader_password}</password><networks><ip>::/0</ip></networks>
      <profile>reading</profile><quota>default</quota></reader>
  </users>
  <quotas><default/></quotas>
</yandex>
"""


class Server:
    """The server. `databases` counts those that tests were given, so that each has its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.port, self.tcp_port, self.replication_port = _free_port(), _free_port(), _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        folder.mkdir(parents=True, exist_ok=True)
        self.configure()
        (folder / "users.xml").write_text(_users())

    def configure(self, more: str = "") -> None:
        """Write the configuration; before it is started. more: further elements."""
        config = _CONFIG.format(folder=self.folder, port=self.port, tcp=self.tcp_port, more=more)
        (self.folder / "config.xml").write_text(config)

    def start(self) -> None:
        with open(self.folder / "output.txt", "ab") as output:
            self._process = subprocess.Popen(
                ["clickhouse-server", f"--config-file={self.folder}/config.xml"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.folder,
            )
        deadline = time.monotonic() + patient(60)
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "output.txt").read_text()[-2000:]
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/ping")
            return connection.getresponse().status == 200
        return False

    def stop(self, signal_number: int = signal.SIGKILL) -> None:
        """End it, by default as a crash of its machine would."""
        if self._process is not None:
            self._process.send_signal(signal_number)
            self._process.wait(patient(60))
            self._process = None

    def url(self, database: str, user: str = "writer", cluster: str = "") -> str:
        """An address without a password."""
        options = f"?cluster={cluster}" if cluster else ""
        return f"clickhouse://{user}@127.0.0.1:{self.port}/{database}{options}"

    def client(
        self, database: str | None = None, user: str = "writer", password: str = PASSWORD, cluster: str = ""
    ) -> Client:
        """A connection to a database with its tables made; without a name, to a new one."""
        if database is not None:
            return Client(_with_password(self.url(database, user, cluster), password))
        self._databases += 1
        client = Client(_with_password(self.url(f"fleet{self._databases}"), PASSWORD))
        migrate(client)
        return client


def _with_password(url: str, password: str) -> ServerAddress:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAROGRAPH_CLICKHOUSE_PASSWORD", password)
        return dataclasses.replace(parse_address(url), timeout=patient(240))


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Coordinator:
    """ZooKeeper, which servers that have the same rows agree by: `apt-get install zookeeper`."""

    def __init__(self, folder: Path):
        self.port, self._folder = _free_port(), folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "zoo.cfg").write_text(
            f"tickTime=500\ndataDir={folder}/data\nclientPort={self.port}\nclientPortAddress=127.0.0.1\n"
            f"maxSessionTimeout={SESSION_MS}\n"
            "admin.enableServer=false\nforceSync=no\n"
        )
        jars = ":".join(str(path) for path in Path("/usr/share/java").glob("*.jar"))
        with open(folder / "output.txt", "ab") as output:
            self._process = subprocess.Popen(
                ["java", "-Xmx128m", "-cp", jars, "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                 str(folder / "zoo.cfg")], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        deadline = time.monotonic() + patient(60)
        while not self._answers():
            assert self._process.poll() is None, (folder / "output.txt").read_text()[-2000:]
            assert time.monotonic() < deadline, "ZooKeeper does not answer"
            time.sleep(0.1)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 2) as connection:
            connection.sendall(b"srvr")
            return b"Zookeeper version" in connection.recv(1000)
        return False

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(patient(60))


def _users() -> str:
    return _USERS.format(password=PASSWORD, reader_password=READER_PASSWORD, seconds=WHOLE_CLUSTER_SECONDS)


def migrate_all(servers: list[Server], client: Client) -> list[str]:
    """`migrate`, once more with servers started anew where one of them no longer does what the whole cluster is to do:
    the thread that does it has ended, and only a new start brings it back."""
    try:
        return migrate(client)
    except ServerError as refusal:
        if "unfinished hosts" not in str(refusal):
            raise
    client.close()
    for server in servers:
        server.stop()
        server.start()
    return migrate(client)


def start_cluster(folder: Path, coordinator: Coordinator | None, replicas: bool = False) -> list[Server]:
    """Two servers as the cluster `two`: a shard each, or two replicas of one shard."""
    servers = [Server(folder / str(number)) for number in range(2)]
    places = [
        f"<replica><host>127.0.0.1</host><port>{server.tcp_port}</port><user>writer</user>"
        f"<password>{PASSWORD}</password></replica>"
        for number, server in enumerate(servers)
    ]
    together = "<internal_replication>true</internal_replication>" if coordinator else ""
    shards = ["".join(places)] if replicas else places
    cluster = "".join(f"<shard>{together}{shard}</shard>" for shard in shards)
    for number, server in enumerate(servers):
        more = f"<remote_servers><two>{cluster}</two></remote_servers>"
        if coordinator is not None:
            more += (
                f"<zookeeper><node><host>127.0.0.1</host><port>{coordinator.port}</port></node>"
                f"<session_timeout_ms>{SESSION_MS}</session_timeout_ms>"
                f"<operation_timeout_ms>{SESSION_MS}</operation_timeout_ms></zookeeper>"
                f"<interserver_http_port>{server.replication_port}</interserver_http_port>"
                f"<interserver_http_host>127.0.0.1</interserver_http_host>"
                "<distributed_ddl><path>/clickhouse/task_queue/ddl</path></distributed_ddl>"
                f"<macros><shard>{1 if replicas else number + 1}</shard><replica>r{number + 1}</replica></macros>"
            )
        server.configure(more)
        server.start()
    return servers


def caught_up(*clients: Client) -> None:
    """Wait until each replica has what the others have: they fetch it by themselves, some time after an INSERT."""
    for client in clients:
        database = client.address.database
        for (table,) in client.rows(f"SELECT table FROM system.replicas WHERE database = '{database}'", False):
            client.run(f"SYSTEM SYNC REPLICA {database}.{table}")
        assert until(lambda client=client: not behind(client), patient(60.0)), "a replica stays behind"


@pytest.fixture(scope="module")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if shutil.which("clickhouse-server") is None:
        pytest.skip("clickhouse-server is not installed: apt-get install clickhouse-server")
    started = Server(tmp_path_factory.mktemp("clickhouse"))
    started.start()
    yield started
    started.stop()
