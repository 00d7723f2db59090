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

// clusterParts is what the cluster provides to the other parts of the node. alone and member
// fill it, so that no other code has to ask whether there is a cluster before it passes one of
// these on.
type clusterParts struct {
	remote       objects.Remote
	tokens       volumes.Tokens
	trustBundles volumes.TrustBundles
	services     *podenv.Services
	storage      csi.Cluster
	accounts     credentials.Accounts // for credential providers
	sources      []podconfig.Source
	// node returns this Node as the apiserver has it. reread reads it again before it keeps a
	// pod out.
	node   func() *v1.Node
	reread func(pod.UID) string
	labels func() map[string]string
	// mirror shows the static pods in the cluster.
	mirror func(pods []*pod.Desired, complete bool)
	// forgetPod is called for a pod that was removed.
	forgetPod func(pod.UID)
	// gone is called with the last version of a forgotten pod.
	gone func(last *v1.Pod)
	// changed makes the registrar write the Node's status.
	changed  func()
	problems func() []pod.Problem
}

// alone returns the parts of a podd without an apiserver.
func (n *Node) alone() clusterParts {
	return clusterParts{
		remote: objects.NoRemote, tokens: volumes.NoTokens, trustBundles: volumes.NoTrustBundles,
		services: podenv.NoServices, storage: csi.NoCluster, accounts: credentials.NoAccounts, node: admission.NoCluster, reread: admission.NoReread,
		labels: objects.NoLabels, mirror: podconfig.NoMirror,
		forgetPod: func(pod.UID) {}, gone: func(*v1.Pod) {}, changed: func() {}, problems: func() []pod.Problem { return nil },
	}
}

// member returns the parts of a node in a cluster.
func (n *Node) member(m *membership) clusterParts {
	return clusterParts{
		remote: m.client, tokens: m.tokens, trustBundles: bundlesOf{n}, services: m.services,
		storage: clusterStorage{m.attached, m.client, m}, accounts: m.client, sources: []podconfig.Source{m.source(n)},
		node: m.attached.Node, reread: m.reread.For,
		labels: func() map[string]string {
			if of := m.attached.Node(); of != nil {
				return of.Labels
			}
			return admission.Labels(n.cfg.NodeName, n.cfg.NodeLabels) // the labels it is registered with
		},
		mirror: m.mirrors.Desired, forgetPod: m.tokens.Forget, gone: m.gone, changed: m.changed, problems: m.problems,
	}
}

// bundlesOf gives access to the trust bundles in the node's objects, which are built later.
type bundlesOf struct{ *Node }

// TrustAnchors implements volumes.TrustBundles.
func (b bundlesOf) TrustAnchors(p *v1.Pod, s *v1.ClusterTrustBundleProjection) ([]byte, error) {
	return b.objects.TrustAnchors(p, s)
}
