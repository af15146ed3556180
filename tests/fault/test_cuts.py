"""Connections between workers and servers cut in mid-push, again and again."""
import pytest

from cluster import Cluster, wait_until
from ports import free_port
from proxy import Proxy


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_cut_connections_lose_nothing_and_repeat_nothing(tmp_path, mode):
    with Cluster(tmp_path, servers=2, workers=3) as cluster:
        cluster.start_scheduler()
        ports = [free_port() for _ in range(2)]
        proxies = [Proxy(("127.0.0.1", port)) for port in ports]
        for index in range(2):
            cluster.start_server(index, "--port", str(ports[index]), "--advertise", f"127.0.0.1:{proxies[index].port}")
        for rank in range(3):
            cluster.start_worker(rank, "--dir", cluster.folder / "accounts", "--mode", mode, "--updates", "1000",
                                 "--keys", "256", "--pause-us", "300", "--lives", "4", "--region", "256")
        stream = f"{mode} dense"
        for cut in range(1, 11):
            cluster.wait_acknowledged(range(3), stream, cut * 60)
            seen = proxies[cut % 2].forwarded
            wait_until(lambda: proxies[cut % 2].forwarded > seen, "bytes under way", logs=cluster.logs)
            assert proxies[cut % 2].cut() > 0
        cluster.expect_exact(lives=3)
        for proxy in proxies:
            assert proxy.cuts >= 15  # five times three workers
            proxy.close()
