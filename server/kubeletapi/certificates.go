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

// The names of the serving certificate that podd makes itself. They are the kubelet's.
const (
	certificateName = "kubelet.crt"
	keyName         = "kubelet.key"
	// selfSignedLife is how long such a certificate is valid, and renewBefore how long before
	// its end podd makes the next one.
	selfSignedLife = 365 * 24 * time.Hour
	renewBefore    = 30 * 24 * time.Hour
)

// Certificate is the serving certificate. It is either one that an operator keeps in files,
// which podd reads again when they change, or a self-signed one, which podd renews in time.
type Certificate struct {
	certFile, keyFile string
	// make makes a new certificate. It is nil if somebody else keeps the files.
	make func() error
	log  *slog.Logger // nil for a self-signed one
	// stat is os.Stat, or a test's.
	stat func(path string) (os.FileInfo, error)

	current atomic.Pointer[tls.Certificate]
	// checking is held while the files are checked. Nobody waits for it: other handshakes use
	// the certificate in memory.
	checking sync.Mutex
	modTime  time.Time       // of certFile; guarded by checking
	failure  logonce.Failure // why the newest version was not taken up; guarded by checking
}

// ConfiguredCertificate reads tlsCertFile and tlsPrivateKeyFile.
func ConfiguredCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log, stat: os.Stat}
	return c, c.load()
}

// SelfSigned reads the certificate that podd made before in a directory, or makes one for a
// name and IP addresses.
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

// due reports whether a self-signed certificate must be renewed.
func (c *Certificate) due() bool {
	return c.make != nil && time.Until(c.current.Load().Leaf.NotAfter) < renewBefore
}

// covers reports whether the certificate is valid for a name and addresses.
func (c *Certificate) covers(name string, ips []string) bool {
	for _, host := range append([]string{name}, ips...) {
		if c.current.Load().Leaf.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// Get implements tls.Config.GetCertificate. One handshake at a time checks the files, and only
// that one waits for the disk.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.checking.TryLock() {
		defer c.checking.Unlock()
		if err := c.reloadLocked(); err != nil {
			return nil, err
		}
	}
	return c.current.Load(), nil
}

// reloadLocked loads a new version of the files, and makes one if that is due. It returns an
// error if there is no valid certificate.
func (c *Certificate) reloadLocked() error {
	if c.due() {
		if err := c.make(); err != nil && time.Now().After(c.current.Load().Leaf.NotAfter) {
			return err
		}
	}
	if info, err := c.stat(c.certFile); err == nil && !info.ModTime().Equal(c.modTime) {
		// If certificate and key do not match yet, the next handshake reads them again.
		logOnce(c.log, &c.failure, "cannot use the new serving certificate: going on with the last one", c.load())
	}
	return nil
}

// logOnce logs an error unless it was the last one logged. A nil error resets that.
func logOnce(log *slog.Logger, failure *logonce.Failure, message string, err error) {
	if log != nil && failure.IsNew(err) {
		log.Warn(message, "error", err)
	}
}

// load reads the files. The caller holds checking, or has not shared c yet.
func (c *Certificate) load() error {
	info, err := c.stat(c.certFile)
	if err != nil {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("serving certificate %s: %w", c.certFile, err)
	}
	c.current.Store(&pair)
	c.modTime = info.ModTime()
	return nil
}

// makeCertificate writes a new key and then its certificate. Between the two writes the new key
// does not match the old certificate, so the pair is not loaded.
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
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSignedLife), // for clients with a slow clock
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

// Authorities are the CAs that sign client certificates. They come from a file, which is read
// again when it changes.
type Authorities struct {
	file string
	log  *slog.Logger
	// stat is os.Stat, or a test's.
	stat func(path string) (os.FileInfo, error)

	pool     atomic.Pointer[x509.CertPool]
	checking sync.Mutex      // like Certificate.checking
	modTime  time.Time       // guarded by checking
	failure  logonce.Failure // why the newest version was not taken up; guarded by checking
}

// ClientAuthorities reads clientCAFile.
func ClientAuthorities(file string, log *slog.Logger) (*Authorities, error) {
	a := &Authorities{file: file, log: log, stat: os.Stat}
	return a, a.load()
}

// Pool implements Config.ClientCAs: it returns the newest version that podd could read. One
// caller at a time checks the file; no other waits for the disk.
func (a *Authorities) Pool() *x509.CertPool {
	if a.checking.TryLock() {
		defer a.checking.Unlock()
		if info, err := a.stat(a.file); err == nil && !info.ModTime().Equal(a.modTime) {
			logOnce(a.log, &a.failure, "cannot use the new clientCAFile: going on with the last one", a.load())
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
	a.modTime = info.ModTime()
	return nil
}
