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

// clusterParts is what the cluster provides to the other parts of the node. standaloneParts and
// memberParts fill it, so that no other code has to ask whether there is a cluster before it
// passes one of these on.
type clusterParts struct {
	remote       objects.Remote
	tokens       volumes.Tokens
	trustBundles volumes.TrustBundles
	certificates volumes.PodCertificates
	services     *podenv.Services
	storage      csi.Cluster
	accounts     credentials.ServiceAccounts // for credential providers
	sources      []podconfig.Source
	// node returns this Node as the apiserver has it. rereadNode reads it again before it keeps a
	// pod out.
	node       func() *v1.Node
	rereadNode func(pod.UID) string
	labels     func() map[string]string
	// mirror shows the static pods in the cluster.
	mirror func(pods []*pod.Desired, complete bool)
	// forgetPod is called for a pod that was removed.
	forgetPod func(pod.UID)
	// podGone is called with the last version of a forgotten pod.
	podGone func(last *v1.Pod)
	// nodeStatusChanged makes the registrar write the Node's status.
	nodeStatusChanged func()
	problems          func() []pod.Problem
}

// standaloneParts returns the parts of a podd without an apiserver.
func (n *Node) standaloneParts() clusterParts {
	return clusterParts{
		remote: objects.NoRemote, tokens: volumes.NoTokens, trustBundles: volumes.NoTrustBundles, certificates: volumes.NoPodCertificates,
		services: podenv.NoServices, storage: csi.NoCluster, accounts: credentials.NoServiceAccounts, node: admission.NoCluster, rereadNode: admission.NoRefresh,
		labels: objects.NoClusterNodeLabels, mirror: podconfig.NoMirrorPods,
		forgetPod: func(pod.UID) {}, podGone: func(*v1.Pod) {}, nodeStatusChanged: func() {}, problems: func() []pod.Problem { return nil },
	}
}

// memberParts returns the parts of a node in a cluster.
func (n *Node) memberParts(m *membership) clusterParts {
	return clusterParts{
		remote: m.client, tokens: m.tokens, trustBundles: nodeTrustBundles{n}, certificates: m.certificates, services: m.services,
		storage: clusterStorage{m.attached, m.client, m}, accounts: m.client, sources: []podconfig.Source{m.source(n)},
		node: m.attached.Node, rereadNode: m.reread.Refresh,
		labels: func() map[string]string {
			if of := m.attached.Node(); of != nil {
				return of.Labels
			}
			return admission.Labels(n.cfg.NodeName, n.cfg.NodeLabels) // the labels it is registered with
		},
		mirror: m.mirrors.SetStaticPods, forgetPod: m.forgetPod, podGone: m.podGone, nodeStatusChanged: m.nodeStatusChanged, problems: m.problems,
	}
}

// nodeTrustBundles gives access to the trust bundles in the node's objects, which are built later.
type nodeTrustBundles struct{ *Node }

// TrustAnchors implements volumes.TrustBundles.
func (b nodeTrustBundles) TrustAnchors(p *v1.Pod, s *v1.ClusterTrustBundleProjection) ([]byte, error) {
	return b.objects.TrustAnchors(p, s)
}
