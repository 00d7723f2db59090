package node

import (
	v1 "k8s.io/api/core/v1"

	"podd/admission"
	"podd/images/credentials"
	"podd/internal/pod"
	"podd/objects"
	"podd/plugins/csi"
	"podd/podconfig"
	"podd/podenv"
	"podd/volumes"
)

// clusterParts is what the other parts of the node have of its cluster. alone and member fill it:
// nothing else asks whether there is a cluster in order to hand one of these over.
type clusterParts struct {
	remote       objects.Remote
	tokens       volumes.Tokens
	trustBundles volumes.TrustBundles
	services     *podenv.Services
	storage      csi.Cluster
	accounts     credentials.Accounts // for credential providers
	sources      []podconfig.Source
	// node is this Node as the apiserver has it, and reread has it read again before it keeps a
	// pod out.
	node   func() *v1.Node
	reread func(pod.UID) string
	labels func() map[string]string
	// mirror has the static pods shown in the cluster.
	mirror func(pods []*pod.Desired, complete bool)
	// forgetPod is called for a pod that was removed.
	forgetPod func(pod.UID)
	// gone is given a pod that was forgotten.
	gone func(last *v1.Pod)
	// changed has the Node's status written.
	changed  func()
	problems func() []pod.Problem
}

// alone is for a podd without an apiserver.
func (n *Node) alone() clusterParts {
	return clusterParts{
		remote: objects.NoRemote, tokens: volumes.NoTokens, trustBundles: volumes.NoTrustBundles,
		services: podenv.NoServices, storage: csi.NoCluster, accounts: credentials.NoAccounts, node: admission.NoCluster, reread: admission.NoReread,
		labels: objects.NoLabels, mirror: podconfig.NoMirror,
		forgetPod: func(pod.UID) {}, gone: func(*v1.Pod) {}, changed: func() {}, problems: func() []pod.Problem { return nil },
	}
}

// member is for the node of a cluster.
func (n *Node) member(m *membership) clusterParts {
	return clusterParts{
		remote: m.client, tokens: m.tokens, trustBundles: bundlesOf{n}, services: m.services,
		storage: clusterStorage{m.attached, m.client, m}, accounts: m.client, sources: []podconfig.Source{m.source(n)},
		node: m.attached.Node, reread: m.reread.For,
		labels: func() map[string]string {
			if of := m.attached.Node(); of != nil {
				return of.Labels
			}
			return admission.Labels(n.cfg.NodeName, n.cfg.NodeLabels) // what it is registered with
		},
		mirror: m.mirrors.Desired, forgetPod: m.tokens.Forget, gone: m.gone, changed: m.changed, problems: m.problems,
	}
}

// bundlesOf are the trust bundles of the node's objects, which are built later.
type bundlesOf struct{ *Node }

// TrustAnchors implements volumes.TrustBundles.
func (b bundlesOf) TrustAnchors(p *v1.Pod, s *v1.ClusterTrustBundleProjection) ([]byte, error) {
	return b.objects.TrustAnchors(p, s)
}
