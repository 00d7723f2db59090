package podcerts

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// keyTypes maps the API's values of keyType to functions that generate such a key.
var keyTypes = map[string]func() (crypto.Signer, error){
	"RSA3072":   func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 3072) },
	"RSA4096":   func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, 4096) },
	"ECDSAP256": func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) },
	"ECDSAP384": func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P384(), rand.Reader) },
	"ECDSAP521": func() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P521(), rand.Reader) },
	"ED25519": func() (crypto.Signer, error) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	},
}

// keyPair is a private key that this node has generated, with its public parts.
type keyPair struct {
	public crypto.PublicKey
	// private is the key as PEM (PKCS #8).
	private []byte
	// request is an empty PKCS #10 request, DER. Its signature proves possession of the key. The
	// apiserver checks the signature, and signers use only the public key.
	request []byte
}

// newKeyPair generates a key. RSA keys take seconds of CPU time.
func newKeyPair(keyType string) (*keyPair, error) {
	newKey, ok := keyTypes[keyType]
	if !ok {
		return nil, fmt.Errorf("keyType %q is unknown to podd", keyType)
	}
	key, err := newKey()
	if err != nil {
		return nil, fmt.Errorf("make a key of type %s: %w", keyType, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key of type %s: %w", keyType, err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("sign a request with a key of type %s: %w", keyType, err)
	}
	return &keyPair{public: key.Public(), private: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), request: request}, nil
}
