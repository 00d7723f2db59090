package identity

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// stored is a pair and its two texts in files, as an operator has them.
func stored(t *testing.T) (pair *Pair, certFile, keyFile string) {
	t.Helper()
	s := newSigner(t)
	s.life = time.Hour
	pair = issuedFor(t, s, ofNode("n"))
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if err := errors.Join(os.WriteFile(certFile, pair.Cert, 0o600), os.WriteFile(keyFile, pair.Key, 0o600)); err != nil {
		t.Fatal(err)
	}
	return pair, certFile, keyFile
}

func TestAPairIsReadFromTwoFiles(t *testing.T) {
	pair, certFile, keyFile := stored(t)
	if got, err := ReadPair(certFile, keyFile); err != nil || got.TLS.Leaf.SerialNumber.Cmp(pair.TLS.Leaf.SerialNumber) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
	for name, files := range map[string][2]string{"no certificate": {certFile + "x", keyFile}, "no key": {certFile, keyFile + "x"}} {
		if got, err := ReadPair(files[0], files[1]); got != nil || !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	if got, err := ReadPair(keyFile, certFile); got != nil || err == nil {
		t.Errorf("in each other's place: got %v, %v", got, err)
	}
}

// What has a key in it is root's alone, and the newest pair is found where upstream's agent
// was interrupted while it replaced the link.
func TestWhatAStoreLeavesOnDisk(t *testing.T) {
	pair, _, _ := stored(t)
	dir := filepath.Join(t.TempDir(), "pki")
	s := NewStore(dir, ServingPrefix)
	pair.Cert = append([]byte("what a signer writes around it\n"), pair.Cert...)
	for range 2 { // the second time within the same second
		if err := s.Update(pair, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("nowhere", filepath.Join(dir, "kubelet-server-updated.pem")); err != nil { // as after a crash
			t.Fatal(err)
		}
	}
	if err := s.Update(pair, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "kubelet-server-2026-01-02-03-04-05.pem")
	for path, want := range map[string]os.FileMode{file: 0o600, dir: 0o755} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: got %v, %v; want mode %v", path, info, err, want)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), "-----BEGIN CERTIFICATE-----") || !strings.Contains(string(text), string(pair.Key)) {
		t.Errorf("got %q, %v; want the certificate and its key alone", text, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("got %v, %v; want the file and its link", entries, err)
	}
	if err := os.Rename(s.Path(), filepath.Join(dir, "kubelet-server-updated.pem")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Current(); err != nil || got.TLS.Leaf.SerialNumber.Cmp(pair.TLS.Leaf.SerialNumber) != 0 {
		t.Errorf("between the two steps: got %v, %v", got, err)
	}
	if err := os.WriteFile(file, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Current(); got != nil || err == nil || !strings.HasPrefix(err.Error(), "certificate "+s.Path()+": ") || !strings.Contains(err.Error(), "PEM") {
		t.Errorf("a damaged one: got %v, %v", got, err)
	}
}

// Whatever is in the way, the error says what was tried, and the last pair stays the newest.
func TestAPairThatCannotBeStored(t *testing.T) {
	pair, _, _ := stored(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, spoil := range map[string]func(dir string) error{
		"a directory in the file's place": func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, "kubelet-client-2026-01-02-03-04-06.pem", "in the way"), 0o755)
		},
		"one in the half file's": func(dir string) error {
			return os.Mkdir(filepath.Join(dir, "kubelet-client-2026-01-02-03-04-06.pem.new"), 0o755)
		},
		"one in the next link's": func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, "kubelet-client-updated.pem", "in the way"), 0o755)
		},
	} {
		dir := filepath.Join(t.TempDir(), "pki")
		s := NewStore(dir, ClientPrefix)
		if err := errors.Join(s.Update(pair, at), spoil(dir)); err != nil {
			t.Fatal(err)
		}
		if err := s.Update(pair, at.Add(time.Second)); err == nil || !strings.HasPrefix(err.Error(), "store certificate: ") {
			t.Errorf("%s: got %v", name, err)
		}
		if got, err := s.Current(); err != nil || got.TLS.Leaf.SerialNumber.Cmp(pair.TLS.Leaf.SerialNumber) != 0 {
			t.Errorf("%s: the last pair: got %v, %v", name, got, err)
		}
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := NewStore(file, ClientPrefix).Update(pair, at); err == nil || !strings.HasPrefix(err.Error(), "store certificate: ") {
		t.Errorf("a file in the directory's place: got %v", err)
	}
}

// The files are upstream's: another agent goes on with them.
func TestTheStoreHasTheKubeletsFiles(t *testing.T) {
	dir := t.TempDir()
	store := NewStore(dir, ClientPrefix)
	if _, err := store.Current(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("empty: got %v", err)
	}
	s := newSigner(t)
	s.life = time.Hour
	key, text, err := store.loadOrCreateKey()
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := store.loadOrCreateKey()
	if err != nil || !again.Public().(*ecdsa.PublicKey).Equal(key.Public()) {
		t.Errorf("another key, %v", err)
	}
	r, err := signingRequest(key, certificatesv1.KubeAPIServerClientKubeletSignerName, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:n"}})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ParsePair(append([]byte("text\n"), s.issue(r.Spec.Request)...), text)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	for i := range 2 {
		if err := store.Update(pair, at.Add(time.Duration(i)*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	target, err := os.Readlink(filepath.Join(dir, "kubelet-client-current.pem"))
	if err != nil || target != filepath.Join(dir, "kubelet-client-2026-01-02-03-04-06.pem") {
		t.Errorf("got %q, %v", target, err)
	}
	if _, err := tls.LoadX509KeyPair(store.Path(), store.Path()); err != nil {
		t.Errorf("the file is not a pair: %v", err)
	}
	if got, err := store.Current(); err != nil || got.TLS.Leaf.Subject.CommonName != "system:node:n" {
		t.Errorf("got %v, %v", got, err)
	}
	if err := errors.Join(os.Remove(store.Path()), os.WriteFile(store.Path(), []byte("precious"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := store.Update(pair, at); err == nil || !strings.Contains(err.Error(), "is no link") {
		t.Errorf("a file in the place of the link: got %v", err)
	}
}
