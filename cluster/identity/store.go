package identity

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"podd/internal/atomicfile"
)

// Store keeps the newest certificate and key of one kind in a directory.
type Store struct {
	dir, prefix string
}

// The kubelet's file prefixes.
const (
	ClientPrefix  = "kubelet-client"
	ServingPrefix = "kubelet-server"
)

// NewStore returns the Store of a prefix in a directory, which need not exist.
func NewStore(dir, prefix string) *Store { return &Store{dir, prefix} }

// Path returns the link to the newest pair: a file with the certificate and its key.
func (s *Store) Path() string { return filepath.Join(s.dir, s.prefix+"-current.pem") }

// pendingKeyPath returns the path of the key that a certificate is being requested for.
func (s *Store) pendingKeyPath() string { return filepath.Join(s.dir, s.prefix+".key.tmp") }

// Pair is a certificate with its chain, and its key.
type Pair struct {
	// Cert and Key are PEM.
	Cert, Key []byte
	TLS       *tls.Certificate
}

// ParsePair parses a certificate and its key. The same text may hold both.
func ParsePair(cert, key []byte) (*Pair, error) {
	parsed, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return &Pair{Cert: cert, Key: key, TLS: &parsed}, nil
}

// ReadPair reads a certificate and its key from files.
func ReadPair(certFile, keyFile string) (*Pair, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	return ParsePair(cert, key)
}

// Current returns the newest pair. The error is os.ErrNotExist if there is none.
func (s *Store) Current() (*Pair, error) {
	text, err := os.ReadFile(s.Path())
	if errors.Is(err, os.ErrNotExist) {
		// Upstream's Store replaces the link in two steps. Between them only this file exists.
		text, err = os.ReadFile(filepath.Join(s.dir, s.prefix+"-updated.pem"))
	}
	if err != nil {
		return nil, fmt.Errorf("read certificate: %w", err)
	}
	cert, key := split(text)
	p, err := ParsePair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", s.Path(), err)
	}
	return p, nil
}

// split separates a certificate and its chain from the key.
func split(text []byte) (cert, key []byte) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			cert = append(cert, pem.EncodeToMemory(block)...)
		} else {
			key = append(key, pem.EncodeToMemory(block)...)
		}
	}
	return cert, key
}

// Update stores a pair durably and makes it the newest in one step: a reader of Path gets
// either the new pair or the last one.
func (s *Store) Update(p *Pair, now time.Time) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("store certificate: %w", err)
	}
	if info, err := os.Lstat(s.Path()); err == nil && info.Mode()&os.ModeSymlink == 0 {
		return fmt.Errorf("store certificate: %s is no link: move it away", s.Path())
	}
	cert, _ := split(p.Cert) // without any text that signers add around it
	file := filepath.Join(s.dir, s.prefix+"-"+now.Format("2006-01-02-15-04-05")+".pem")
	if err := atomicfile.WriteDurably(file, bytes.Join([][]byte{cert, p.Key}, nil), 0o600); err != nil {
		return fmt.Errorf("store certificate: %w", err)
	}
	absolute, err := filepath.Abs(file)
	if err != nil {
		return fmt.Errorf("store certificate: %w", err)
	}
	next := filepath.Join(s.dir, s.prefix+"-updated.pem")
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("store certificate: %w", err)
	}
	if err := errors.Join(os.Symlink(absolute, next), os.Rename(next, s.Path())); err != nil {
		return fmt.Errorf("store certificate: %w", err)
	}
	return nil
}
