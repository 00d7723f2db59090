package kubeletapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"podd/internal/atomicfile"
	"podd/internal/logonce"
)

// The names of a serving certificate that podd makes itself, the kubelet's.
const (
	certificateName = "kubelet.crt"
	keyName         = "kubelet.key"
	// selfSignedLife is how long such a certificate is valid, and renewBefore when the next
	// one is made.
	selfSignedLife = 365 * 24 * time.Hour
	renewBefore    = 30 * 24 * time.Hour
)

// Certificate is the serving certificate: one that an operator keeps in files, which are
// read again when they change, or a self-signed one, which podd makes anew in time.
type Certificate struct {
	certFile, keyFile string
	// make makes a new one; nil for one that somebody else keeps.
	make func() error
	log  *slog.Logger // nil for one that podd makes
	// stat is os.Stat, or a test's.
	stat func(path string) (os.FileInfo, error)

	now atomic.Pointer[tls.Certificate]
	// looking is held by whoever looks at the files. Nobody waits for it: handshakes go on
	// with what is there.
	looking sync.Mutex
	version time.Time       // of certFile; guarded by looking
	failure logonce.Failure // why the newest version was not taken up; guarded by looking
}

// ConfiguredCertificate reads tlsCertFile and tlsPrivateKeyFile.
func ConfiguredCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log, stat: os.Stat}
	return c, c.load()
}

// SelfSigned reads the certificate that podd has made before in a directory, or makes one,
// for a name and IP addresses.
func SelfSigned(dir, name string, ips []string) (*Certificate, error) {
	c := &Certificate{certFile: filepath.Join(dir, certificateName), keyFile: filepath.Join(dir, keyName), stat: os.Stat}
	c.make = func() error { return makeCertificate(c.certFile, c.keyFile, name, ips) }
	err := c.load()
	if err == nil && !c.due() && c.covers(name, ips) {
		return c, nil
	}
	if err := c.make(); err != nil {
		return nil, fmt.Errorf("make a serving certificate: %w", err)
	}
	return c, c.load()
}

// due says that a self-signed certificate is to be made anew.
func (c *Certificate) due() bool {
	return c.make != nil && time.Until(c.now.Load().Leaf.NotAfter) < renewBefore
}

// covers says that the certificate is for a name and addresses.
func (c *Certificate) covers(name string, ips []string) bool {
	for _, host := range append([]string{name}, ips...) {
		if c.now.Load().Leaf.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// Get is for tls.Config.GetCertificate. One handshake at a time looks at the files, and only
// that one waits for their disk.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.looking.TryLock() {
		defer c.looking.Unlock()
		if err := c.lookLocked(); err != nil {
			return nil, err
		}
	}
	return c.now.Load(), nil
}

// lookLocked takes up a new version of the files, and makes one if that is due. The error
// says that there is no valid certificate.
func (c *Certificate) lookLocked() error {
	if c.due() {
		if err := c.make(); err != nil && time.Now().After(c.now.Load().Leaf.NotAfter) {
			return err
		}
	}
	if info, err := c.stat(c.certFile); err == nil && !info.ModTime().Equal(c.version) {
		// What does not fit together yet is read at the next handshake.
		tellOnce(c.log, &c.failure, "cannot use the new serving certificate: going on with the last one", c.load())
	}
	return nil
}

// tellOnce logs an error unless it is the one that was logged last; nil ends it.
func tellOnce(log *slog.Logger, failure *logonce.Failure, message string, err error) {
	if log != nil && failure.New(err) {
		log.Warn(message, "error", err)
	}
}

// load reads the files. It is called with looking held, or before anybody else has c.
func (c *Certificate) load() error {
	info, err := c.stat(c.certFile)
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("serving certificate %s: %w", c.certFile, err)
	}
	c.now.Store(&pair)
	c.version = info.ModTime()
	return nil
}

// makeCertificate writes a new key and its certificate, the key first: with the old
// certificate it is no pair, and is not taken up.
func makeCertificate(certFile, keyFile, name string, ips []string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: fmt.Sprintf("%s@%d", name, now.Unix())}, DNSNames: []string{name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSignedLife), // for clients whose clock is slow
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	for _, text := range ips {
		if ip := net.ParseIP(text); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(certFile), 0o700); err != nil {
		return err
	}
	return errors.Join(
		atomicfile.Write(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), 0o600),
		atomicfile.Write(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644),
	)
}

// Authorities are those that sign client certificates, of a file that is read again when it
// changes.
type Authorities struct {
	file string
	log  *slog.Logger
	// stat is os.Stat, or a test's.
	stat func(path string) (os.FileInfo, error)

	pool    atomic.Pointer[x509.CertPool]
	looking sync.Mutex      // as a Certificate's
	version time.Time       // guarded by looking
	failure logonce.Failure // why the newest version was not taken up; guarded by looking
}

// ClientAuthorities reads clientCAFile.
func ClientAuthorities(file string, log *slog.Logger) (*Authorities, error) {
	a := &Authorities{file: file, log: log, stat: os.Stat}
	return a, a.load()
}

// Pool is for Config.ClientCAs: the newest version that could be read. One caller at a time
// looks at the file; no other waits for its disk.
func (a *Authorities) Pool() *x509.CertPool {
	if a.looking.TryLock() {
		defer a.looking.Unlock()
		if info, err := a.stat(a.file); err == nil && !info.ModTime().Equal(a.version) {
			tellOnce(a.log, &a.failure, "cannot use the new clientCAFile: going on with the last one", a.load())
		}
	}
	return a.pool.Load()
}

func (a *Authorities) load() error {
	info, err := a.stat(a.file)
	if err != nil {
		return fmt.Errorf("clientCAFile: %w", err)
	}
	text, err := os.ReadFile(a.file)
	if err != nil {
		return fmt.Errorf("clientCAFile: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("clientCAFile %s has no certificate", a.file)
	}
	a.pool.Store(pool)
	a.version = info.ModTime()
	return nil
}
