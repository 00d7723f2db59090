package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// ClientCA is the path of the certificate of who signs client certificates: what an agent's
// --client-ca-file is. It is there after Start.
func (a *APIServer) ClientCA() string { return a.path("client-ca.crt") }

// signer signs client certificates.
type signer struct {
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
	der       []byte
}

func newSigner() (*signer, error) {
	s := &signer{authority: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true,
	}}
	var err error
	if s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	if s.der, err = x509.CreateCertificate(rand.Reader, s.authority, s.authority, &s.key.PublicKey, s.key); err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	return s, nil
}

// sign makes a certificate of a user, in groups.
func (s *signer) sign(user string, groups ...string) (der []byte, key *ecdsa.PrivateKey, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, err
	}
	client := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: user, Organization: groups},
		NotBefore: s.authority.NotBefore, NotAfter: s.authority.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if der, err = x509.CreateCertificate(rand.Reader, client, s.authority, &key.PublicKey, s.key); err != nil {
		return nil, nil, fmt.Errorf("make a client certificate: %w", err)
	}
	return der, key, nil
}

// ClientCertificate makes a certificate of a user; right says that ClientCA has signed it,
// and not another authority.
func (a *APIServer) ClientCertificate(user string, right bool) (c tls.Certificate, err error) {
	by := a.signer
	if !right {
		if by, err = newSigner(); err != nil {
			return c, err
		}
	}
	der, key, err := by.sign(user)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// makeClientCertificate makes an authority, and the certificate by which the apiserver is a
// client of the nodes' agents.
func (a *APIServer) makeClientCertificate() (err error) {
	if a.signer, err = newSigner(); err != nil {
		return err
	}
	return a.writeSigned(a.signer, "client-ca", "client", "kube-apiserver-kubelet-client", "system:masters")
}

// frontProxy is the name by which the apiserver is a client of apiservers behind it.
const frontProxy = "front-proxy-client"

// makeFrontProxy makes an authority of its own for that: who has one of its certificates
// may speak for every user.
func (a *APIServer) makeFrontProxy() error {
	s, err := newSigner()
	if err != nil {
		return err
	}
	return a.writeSigned(s, "front-proxy-ca", "front-proxy", frontProxy)
}

// writeSigned writes an authority, and a certificate of a user that it signs, each with its
// key, into files of these names.
func (a *APIServer) writeSigned(s *signer, authority, leaf, user string, groups ...string) error {
	signed, own, err := s.sign(user, groups...)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		return err
	}
	authoritySecret, err := x509.MarshalECPrivateKey(s.key)
	if err != nil {
		return err
	}
	write := func(file, kind string, der []byte) error {
		return os.WriteFile(a.path(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	return errors.Join(write(authority+".crt", "CERTIFICATE", s.der), write(authority+".key", "EC PRIVATE KEY", authoritySecret),
		write(leaf+".crt", "CERTIFICATE", signed), write(leaf+".key", "EC PRIVATE KEY", secret))
}

// Approve approves a CertificateSigningRequest and issues its certificate, which is valid
// for life: what a kube-controller-manager would do.
func (a *APIServer) Approve(ctx context.Context, name string, life time.Duration) error {
	return a.decide(ctx, name, "Approved", life)
}

// Deny denies a CertificateSigningRequest.
func (a *APIServer) Deny(ctx context.Context, name string) error {
	return a.decide(ctx, name, "Denied", 0)
}

func (a *APIServer) decide(ctx context.Context, name, decision string, life time.Duration) error {
	var r certificatesv1.CertificateSigningRequest
	if err := a.client.Get(ctx, Object{"kind": "CertificateSigningRequest", "metadata": map[string]any{"name": name}}, &r); err != nil {
		return err
	}
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.RequestConditionType(decision), Status: "True", Reason: "Test", Message: "by the test",
	})
	next, err := a.client.put(ctx, "/apis/certificates.k8s.io/v1/certificatesigningrequests/"+name+"/approval", &r)
	if err != nil || decision == "Denied" {
		return err
	}
	if err := json.Unmarshal(next, &r); err != nil {
		return err
	}
	if r.Status.Certificate, err = a.Sign(r.Spec.Request, life, r.Spec.SignerName == certificatesv1.KubeletServingSignerName); err != nil {
		return err
	}
	_, err = a.client.put(ctx, "/apis/certificates.k8s.io/v1/certificatesigningrequests/"+name+"/status", &r)
	return err
}

// Sign issues a certificate for a request in PEM, by the authority of ClientCA.
func (a *APIServer) Sign(request []byte, life time.Duration, serving bool) ([]byte, error) {
	pair, err := tls.LoadX509KeyPair(a.path("client-ca.crt"), a.path("client-ca.key"))
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(request)
	if block == nil {
		return nil, errors.New("no PEM")
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: asked.Subject, DNSNames: asked.DNSNames, IPAddresses: asked.IPAddresses,
		NotBefore: now.Add(-time.Second), NotAfter: now.Add(life), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if serving {
		leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, pair.Leaf, asked.PublicKey, pair.PrivateKey)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// BootstrapKubeconfig writes the file by which an agent may request its certificate, and
// nothing else.
func (a *APIServer) BootstrapKubeconfig(ctx context.Context, path string) error {
	err := a.client.Apply(ctx, Object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": "bootstrap"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers"}},
	})
	return errors.Join(err, a.kubeconfig(path, "system:bootstrap:test", a.token+"-bootstrap"))
}

// NodeCertificate issues a client certificate for an agent, and makes its key; both are PEM.
func (a *APIServer) NodeCertificate(node string, life time.Duration) (cert, key []byte, err error) {
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalECPrivateKey(made)
	if err != nil {
		return nil, nil, err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, made)
	if err != nil {
		return nil, nil, err
	}
	cert, err = a.Sign(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}), life, false)
	return cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), err
}

// OtherAuthority returns the certificate, in PEM, of an authority that nobody trusts.
func OtherAuthority() (string, error) {
	s, err := newSigner()
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.der})), nil
}
