package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"reflect"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"

	"podd/cluster/apiserver"
	"podd/cluster/identity"
	"podd/cluster/nodestatus"
	"podd/internal/pod"
	"podd/server/kubeletapi"
)

// clientIdentity is how podd authenticates to its apiserver.
type clientIdentity struct {
	client *apiserver.Client
	// rotation is nil if podd requests no client certificate and uses the kubeconfig's.
	rotation *identity.Rotation
}

func (n *Node) userAgent() string { return "podd/" + n.options.Version.Version }

// subject is the name in both certificates (the Node authorizer and upstream's signers require
// it).
func (n *Node) subject() pkix.Name {
	return pkix.Name{CommonName: "system:node:" + n.cfg.NodeName, Organization: []string{"system:nodes"}}
}

// newClientIdentity reads the certificate that an earlier podd, or a kubelet, obtained.
func (n *Node) newClientIdentity(client *apiserver.Client) (*clientIdentity, error) {
	i := &clientIdentity{client: client}
	kubeconfig, bootstrap := n.cfg.Kubeconfig, n.cfg.BootstrapKubeconfig
	if !n.cfg.RotateCertificates && (bootstrap == "" || apiserver.CheckKubeconfig(kubeconfig) == nil) {
		return i, nil
	}
	store := identity.NewStore(n.cfg.CertDir, identity.ClientPrefix)
	issued := func(p *identity.Pair) error {
		if bootstrap == "" || apiserver.CheckKubeconfig(kubeconfig) == nil {
			return client.UseCertificate(p.Cert, p.Key)
		}
		return errors.Join(apiserver.WriteKubeconfig(kubeconfig, bootstrap, store.Path()), client.Reload())
	}
	initial, _ := identity.ParsePair(client.Certificate()) // nil if it authenticates by something else
	i.rotation = identity.New(identity.Config{
		Store: store, Signer: certificatesv1.KubeAPIServerClientKubeletSignerName, NoRenewal: !n.cfg.RotateCertificates,
		Template: func() *x509.CertificateRequest { return &x509.CertificateRequest{Subject: n.subject()} },
		Requester: func(valid bool) identity.Requester {
			if valid || bootstrap == "" {
				return client
			}
			// Connect only now: kubeadm removes the file when the node has joined.
			other, err := apiserver.Connect(apiserver.Config{Kubeconfig: bootstrap, UserAgent: n.userAgent(), Log: n.log})
			if err != nil {
				n.log.Warn("cannot use the bootstrap kubeconfig", "error", err)
				return client
			}
			return other
		},
		StoreInitial: true, Issued: issued, Log: n.log, Metrics: identity.ClientMetrics(n.registry),
	}, initial)
	if p := i.rotation.Pair(); p != nil {
		return i, issued(p)
	}
	return i, nil
}

// start maintains the client's credentials.
func (i *clientIdentity) start(ctx context.Context, g *errgroup.Group) {
	start(ctx, g, "kubeconfig", func(ctx context.Context) error {
		return i.client.WatchKubeconfig(ctx, func() {
			if i.rotation == nil {
				return
			}
			if p, err := identity.ParsePair(i.client.Certificate()); err == nil {
				i.rotation.Adopt(p)
			}
		})
	})
	if i.rotation != nil {
		start(ctx, g, "client certificate", i.rotation.Run)
	}
}

// problems returns what keeps podd from new credentials, and the Lease's problems.
func (m *membership) problems() []pod.Problem {
	all := append(m.client.Problems(), m.lease.Problems()...)
	if m.identity.rotation != nil {
		all = append(all, m.identity.rotation.Problems()...)
	}
	if m.serving != nil {
		all = append(all, m.serving.rotation.Problems()...)
	}
	return all
}

// servingIdentity is the serving certificate that podd requests.
type servingIdentity struct {
	rotation *identity.Rotation
	// registrar has the Node, which the certificate takes its addresses from. It is nil before
	// the Node is registered.
	registrar     atomic.Pointer[nodestatus.Registrar]
	lastAddresses []v1.NodeAddress // used only by renewOnAddressChange
}

// servingCertificate returns the value for tls.Config.GetCertificate.
func (n *Node) servingCertificate() (get func(*tls.ClientHelloInfo) (*tls.Certificate, error), err error) {
	c := &n.cfg.API
	if c.RequestCertificate {
		n.membership.serving = n.newServingIdentity()
		return n.membership.serving.get, nil
	}
	var certificate *kubeletapi.Certificate
	if c.CertFile != "" {
		certificate, err = kubeletapi.ConfiguredCertificate(c.CertFile, c.KeyFile, n.log)
	} else {
		certificate, err = kubeletapi.SelfSigned(n.cfg.CertDir, n.cfg.NodeName, n.addresses.Current())
	}
	if err != nil {
		return nil, err
	}
	return certificate.Get, nil
}

func (n *Node) newServingIdentity() *servingIdentity {
	s := &servingIdentity{}
	var initial *identity.Pair
	if c := &n.cfg.API; c.CertFile != "" {
		pair, err := identity.ReadPair(c.CertFile, c.KeyFile)
		if err != nil {
			n.log.Warn("cannot use tlsCertFile: there is no serving certificate until the cluster has issued one", "error", err)
		}
		initial = pair
	}
	s.rotation = identity.New(identity.Config{
		Store: identity.NewStore(n.cfg.CertDir, identity.ServingPrefix), Signer: certificatesv1.KubeletServingSignerName,
		Template:  func() *x509.CertificateRequest { return s.template(n.subject()) },
		Requester: func(bool) identity.Requester { return n.membership.client },
		Log:       n.log, Metrics: identity.ServingMetrics(n.registry),
	}, initial)
	return s
}

// template requests a certificate for the Node's addresses; the cluster's approvers compare the
// request with them. It is nil while none of them is an IP address, as upstream's.
func (s *servingIdentity) template(subject pkix.Name) *x509.CertificateRequest {
	registrar := s.registrar.Load()
	if registrar == nil || registrar.LastKnownNode() == nil {
		return nil
	}
	return servingTemplate(subject, registrar.LastKnownNode().Status.Addresses)
}

func servingTemplate(subject pkix.Name, addresses []v1.NodeAddress) *x509.CertificateRequest {
	t := &x509.CertificateRequest{Subject: subject}
	var ips []string
	for _, a := range addresses {
		switch ip := net.ParseIP(a.Address); {
		case a.Address == "":
		case ip != nil && a.Type != v1.NodeInternalDNS && a.Type != v1.NodeExternalDNS:
			ips = append(ips, ip.String())
		case ip == nil && a.Type != v1.NodeInternalIP && a.Type != v1.NodeExternalIP:
			t.DNSNames = append(t.DNSNames, a.Address)
		}
	}
	slices.Sort(ips)
	for _, ip := range slices.Compact(ips) {
		t.IPAddresses = append(t.IPAddresses, net.ParseIP(ip))
	}
	if len(ips) == 0 {
		return nil
	}
	slices.Sort(t.DNSNames)
	t.DNSNames = slices.Compact(t.DNSNames)
	return t
}

// renewOnAddressChange renews the certificate if the Node's addresses have changed. Only the
// registrar calls it.
func (s *servingIdentity) renewOnAddressChange() {
	if s == nil {
		return
	}
	registrar := s.registrar.Load()
	if registrar == nil || registrar.LastKnownNode() == nil {
		return
	}
	if now := registrar.LastKnownNode().Status.Addresses; !reflect.DeepEqual(now, s.lastAddresses) {
		s.lastAddresses = now
		s.rotation.Wake()
	}
}

// get implements tls.Config.GetCertificate. Its error has the kubelet's words.
func (s *servingIdentity) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.rotation.Current(); c != nil {
		return c, nil
	}
	return nil, errors.New("no serving certificate available for the kubelet")
}

// run keeps the certificate valid once the Node exists: whoever approves the request looks at
// the Node.
func (s *servingIdentity) run(ctx context.Context, registrar *nodestatus.Registrar) error {
	select {
	case <-registrar.Registered():
	case <-ctx.Done():
		return ctx.Err()
	}
	s.registrar.Store(registrar)
	return s.rotation.Run(ctx)
}
