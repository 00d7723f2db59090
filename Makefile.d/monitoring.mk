# What measures the nodes of a cluster, for the tests of a node of a cluster (make e2e, make test): each is
# built or fetched once and kept in ~/.cache/podd.

# Upstream's metrics-server, behind kubectl top: $$metricsserver.
metricsserver = $(call upstream,metricsserver,test/cluster/metricsserver,sigs.k8s.io/metrics-server/cmd/metrics-server,,,v0.9.0)
