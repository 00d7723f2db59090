# A cluster of two nodes that upstream's kubeadm makes, with podd in the kubelet's place.
#   make kubeadm                         init, join, a pod, its logs, reset
# Upstream's programs and their images are made once, in some minutes, and kept in
# ~/.cache/podd. Nodes are namespaces of this machine, which stays as it is.

# Shell text that leaves in $$kubeadm the directory of kubeadm and what its cluster is made of,
# and in $$kubeadm_images what hack/build-kubeadm-images.sh prints.
define kubeadm_programs
sum=$$({ cat test/cluster/kubeadm/go.sum test/cluster/coredns/go.sum test/cluster/coredns/main.go; echo '$(parity_version)'; } | sha256sum | cut -c1-12); \
cache="$${XDG_CACHE_HOME:-$${HOME:+$$HOME/.cache}}"; \
kubeadm="$${cache:-$$PWD/build}/podd/kubeadm-$(PARITY_KUBELET)-$$sum"; \
mkdir -p "$$kubeadm"; \
for of in cmd/kubeadm cmd/kube-apiserver cmd/kube-controller-manager cmd/kube-scheduler cmd/kube-proxy etcd coredns; do \
	to="$$kubeadm/$${of##*/}"; in=test/cluster/kubeadm; from=k8s.io/kubernetes/$$of; \
	case $$of in etcd) from=go.etcd.io/etcd/server/v3 ;; coredns) in=test/cluster/coredns; from=. ;; esac; \
	if [ ! -x "$$to" ]; then \
		echo "building upstream's $${of##*/}, once, into $$to" >&2; \
		(cd $$in && CGO_ENABLED=0 $(GO) build -trimpath -o "$$to.$$$$" -ldflags '-s -w $(parity_version)' $$from); \
		mv "$$to.$$$$" "$$to"; \
	fi; \
done; \
kubeadm_images=$$(hack/build-kubeadm-images.sh "$$kubeadm" "$$kubeadm/kubeadm")
endef

.PHONY: kubeadm
kubeadm: build runtime ## a cluster of two podds by upstream's kubeadm, in namespaces: init, join, reset (a test)
	@$(call need,$@); $(need_pods)
	@set -e; $(kubectl); $(kubeadm_programs); \
	PODD_TEST_KUBECTL="$$kubectl" PODD_TEST_KUBEADM="$$kubeadm/kubeadm" PODD_TEST_KUBEADM_IMAGES="$$kubeadm_images" \
		$(testsum) -- -count=1 -timeout 30m ./test/kubeadm
