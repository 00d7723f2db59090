package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"
)

// ClientCA is the path of the certificate of who signs client certificates: what an agent's
// --client-ca-file is. It is there after Start.
func (a *APIServer) ClientCA() string { return a.path("client-ca.crt") }

// makeClientCertificate makes an authority, and the certificate by which the apiserver is a
// client of the nodes' agents.
func (a *APIServer) makeClientCertificate() error {
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	client := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	ca, err := x509.CreateCertificate(rand.Reader, authority, authority, &key.PublicKey, key)
	if err != nil {
		return fmt.Errorf("make an authority: %w", err)
	}
	signed, err := x509.CreateCertificate(rand.Reader, client, authority, &own.PublicKey, key)
	if err != nil {
		return fmt.Errorf("make a client certificate: %w", err)
	}
	secret, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		return err
	}
	authoritySecret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	write := func(file, kind string, der []byte) error {
		return os.WriteFile(a.path(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	return errors.Join(write("client-ca.crt", "CERTIFICATE", ca), write("client-ca.key", "EC PRIVATE KEY", authoritySecret),
		write("client.crt", "CERTIFICATE", signed), write("client.key", "EC PRIVATE KEY", secret))
}
