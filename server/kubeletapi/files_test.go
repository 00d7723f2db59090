package kubeletapi

import (
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestASelfSignedCertificateIsMadeOnceAndAnewWhenTheNodeIsAnother(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	get := func(ips ...string) string {
		t.Helper()
		c, err := SelfSigned(dir, "node0", ips)
		if err != nil {
			t.Fatal(err)
		}
		now, err := c.Get(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range append(ips, "node0") {
			if err := now.Leaf.VerifyHostname(host); err != nil {
				t.Error(err)
			}
		}
		return now.Leaf.SerialNumber.String()
	}
	first := get("10.0.0.1")
	if again := get("10.0.0.1"); again != first {
		t.Error("a restart made another certificate")
	}
	if other := get("10.0.0.2", "fd00::1"); other == first {
		t.Error("another address: the same certificate")
	}
	if info, err := os.Stat(filepath.Join(dir, keyName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key has the mode %v (%v)", info.Mode(), err)
	}
}

func TestFilesAreReadAgainWhenTheyChange(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if _, err := SelfSigned(dir, "node0", nil); err != nil {
			t.Fatal(err)
		}
	}
	c, err := ConfiguredCertificate(filepath.Join(dir, certificateName), filepath.Join(dir, keyName), nil)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := c.Get(nil)
	if err := makeCertificate(c.certFile, c.keyFile, "other", nil); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(c.certFile, later, later); err != nil {
		t.Fatal(err)
	}
	if after, _ := c.Get(nil); after.Leaf.SerialNumber.Cmp(before.Leaf.SerialNumber) == 0 {
		t.Error("the old certificate is served")
	}
	if err := os.WriteFile(c.certFile, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if now, err := c.Get(nil); now == nil || err != nil {
		t.Errorf("a broken file: got %v, want the last good one", err)
	}
}

func TestClientAuthorities(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	if _, err := ClientAuthorities(file, nil); err == nil {
		t.Error("no file: no error")
	}
	write := func(name string) {
		t.Helper()
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certify(t, pkix.Name{CommonName: name}, nil, nil).Certificate[0]})
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	a, err := ClientAuthorities(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	before := a.Pool()
	write("two")
	later := time.Now().Add(time.Minute)
	if err := os.Chtimes(file, later, later); err != nil {
		t.Fatal(err)
	}
	if after := a.Pool(); after.Equal(before) {
		t.Error("the old authorities count")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if now := a.Pool(); now == nil {
		t.Error("a broken file: no authorities")
	}
}

// TestAHandshakeWaitsForNoDiskOfAnothers: a file server that hangs must not end the API.
func TestAHandshakeWaitsForNoDiskOfAnothers(t *testing.T) {
	dir := t.TempDir()
	c, err := SelfSigned(dir, "node0", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := ClientAuthorities(c.certFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	looking, goOn := make(chan struct{}, 2), make(chan struct{})
	hangs := func(path string) (os.FileInfo, error) {
		looking <- struct{}{}
		<-goOn
		return os.Stat(path)
	}
	c.stat, a.stat = hangs, hangs
	ended, others := make(chan struct{}, 2), make(chan struct{})
	go func() { _, _ = c.Get(nil); ended <- struct{}{} }()
	go func() { a.Pool(); ended <- struct{}{} }()
	<-looking
	<-looking
	go func() {
		defer close(others)
		if now, err := c.Get(nil); now == nil || err != nil {
			t.Errorf("got %v, %v, want the certificate that is there", now, err)
		}
		if a.Pool() == nil {
			t.Error("no authorities, want those that are there")
		}
	}()
	select {
	case <-others:
	case <-time.After(time.Minute):
		t.Error("others wait for the disk")
	}
	close(goOn)
	<-ended
	<-ended
}
