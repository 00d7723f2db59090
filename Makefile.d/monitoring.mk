# What measures the nodes of a cluster, for the tests of a node of a cluster (make e2e, make test-all): each is
# built or fetched once and kept in ~/.cache/podd.

# Upstream's metrics-server, behind kubectl top: $$metricsserver.
metricsserver = $(call upstream,metricsserver,test/cluster/metricsserver,sigs.k8s.io/metrics-server/cmd/metrics-server,,,v$(METRICS_SERVER))

# Debian's Prometheus: $$prometheus; empty where it cannot be had, and the test that needs it says so. Only
# its binary is taken out of the package: installing the package would start a service.
prometheus = \
	cache="$${XDG_CACHE_HOME:-$${HOME:+$$HOME/.cache}}"; \
	prometheus="$${cache:-$$PWD/build}/podd/prometheus"; \
	if command -v prometheus >/dev/null 2>&1; then \
		prometheus=$$(command -v prometheus); \
	elif [ ! -x "$$prometheus" ]; then \
		echo "taking Prometheus out of Debian's package, once, into $$prometheus" >&2; \
		fetched=$$(mktemp -d); mkdir -p "$$(dirname "$$prometheus")"; \
		fetch_prometheus() { (cd "$$fetched" && apt-get download -qq prometheus >/dev/null 2>&1); }; \
		if { fetch_prometheus || { apt-get update -qq >/dev/null 2>&1 && fetch_prometheus; }; } && \
			dpkg-deb -x "$$fetched"/prometheus_*.deb "$$fetched"; then \
			mv "$$fetched/usr/bin/prometheus" "$$prometheus"; \
		else \
			echo "no Debian package prometheus: its test is skipped" >&2; prometheus=; \
		fi; \
		rm -rf "$$fetched"; \
	fi
