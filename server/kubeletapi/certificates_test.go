package kubeletapi

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
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
	for name, want := range map[string]os.FileMode{keyName: 0o600, certificateName: 0o644, "": 0o700} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%q has the mode %v (%v), want %v", name, info.Mode(), err, want)
		}
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

// TestASelfSignedCertificateIsRenewed lives through a year: handshakes go on with the last
// certificate where no other can be made, until it is over.
func TestASelfSignedCertificateIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "pki")
		c, err := SelfSigned(dir, "node0", []string{"10.0.0.1", "no address"})
		if err != nil {
			t.Fatal(err)
		}
		get := func() *x509.Certificate {
			t.Helper()
			now, err := c.Get(nil)
			if err != nil {
				t.Fatal(err)
			}
			if leaf := now.Leaf; time.Now().Before(leaf.NotBefore) || time.Now().After(leaf.NotAfter) || !now.PrivateKey.(*ecdsa.PrivateKey).PublicKey.Equal(leaf.PublicKey) {
				t.Errorf("at %v a certificate from %v to %v is served, or one of another key", time.Now(), leaf.NotBefore, leaf.NotAfter)
			}
			return now.Leaf
		}
		first := get()
		if life := first.NotAfter.Sub(first.NotBefore); life != selfSignedLife+time.Hour {
			t.Errorf("it is valid for %v", life)
		}
		time.Sleep(selfSignedLife - renewBefore - time.Minute)
		if get() != first {
			t.Error("it was made anew too early")
		}
		time.Sleep(2 * time.Minute)
		second := get()
		if second == first || get() != second {
			t.Error("it was not made anew once, 30 days before its end")
		}
		if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil { // no directory any more
			t.Fatal(err)
		}
		time.Sleep(selfSignedLife - time.Hour)
		if get() != second {
			t.Error("it was dropped before its end")
		}
		time.Sleep(2 * time.Hour)
		if now, err := c.Get(nil); err == nil || !strings.Contains(err.Error(), "not a directory") {
			t.Errorf("after its end %v is served, or not said why not: %v", now, err)
		}
		if _, err := SelfSigned(dir, "node0", nil); err == nil {
			t.Error("a start that can make none: got no error")
		}
	})
}

// TestAFileThatCannotBeUsedIsToldOnce, and again once another has been used.
func TestAFileThatCannotBeUsedIsToldOnce(t *testing.T) {
	dir := t.TempDir()
	if _, err := SelfSigned(dir, "node0", nil); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, nil))
	certFile, keyFile := filepath.Join(dir, certificateName), filepath.Join(dir, keyName)
	c, err := ConfiguredCertificate(certFile, keyFile, log)
	if err != nil {
		t.Fatal(err)
	}
	a, err := ClientAuthorities(certFile, log)
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(certFile)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	for i, text := range []string{"half", "half", string(good), "half"} {
		at = at.Add(time.Minute)
		if err := errors.Join(os.WriteFile(certFile, []byte(text), 0o600), os.Chtimes(certFile, at, at)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if now, err := c.Get(nil); now == nil || err != nil || a.Pool() == nil {
				t.Errorf("version %d: got %v, %v; want the last good one", i, now, err)
			}
		}
		want := []int{1, 1, 1, 2}[i]
		for _, message := range []string{"cannot use the new serving certificate", "cannot use the new clientCAFile"} {
			if got := strings.Count(said.String(), message); got != want {
				t.Errorf("version %d: %q was told %d times, want %d", i, message, got, want)
			}
		}
	}
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	if now, err := c.Get(nil); now == nil || err != nil || a.Pool() == nil {
		t.Errorf("without a file: got %v, %v; want the last good one", now, err)
	}
	if _, err := ConfiguredCertificate(certFile, keyFile, log); err == nil {
		t.Error("a start without the file: got no error")
	}
}
