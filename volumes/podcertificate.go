package volumes

import v1 "k8s.io/api/core/v1"

// PodCertificates returns the private keys and certificate chains of projections, as PEM. If
// there are none yet, the error says why. Changed is called for the pod when they arrive and
// when they are renewed. It must not block.
type PodCertificates interface {
	// Credential returns those of a source of a projected volume. source is its index.
	Credential(p *v1.Pod, volume string, source int, s *v1.PodCertificateProjection) (key, chain []byte, err error)
}

// NoPodCertificates makes a volume that asks for a certificate fail: the node has no apiserver.
var NoPodCertificates PodCertificates

// addPodCertificate adds the files of a key and its certificates. As upstream, they have the
// modes of a token. All files of a volume are replaced in one step, so a key never appears with
// the certificates of another key.
func (f files) addPodCertificate(t target, source int, s *v1.PodCertificateProjection, mode *int32) error {
	if t.sources.certificates == NoPodCertificates {
		return noAPIServer("podCertificate", "issues certificates")
	}
	key, chain, err := t.sources.certificates.Credential(t.pod, t.volume.Name, source, s)
	if err != nil {
		return err
	}
	if s.CredentialBundlePath != "" {
		f.putPrivate(t, s.CredentialBundlePath, append(key[:len(key):len(key)], chain...), mode, s.User)
	}
	if s.KeyPath != "" {
		f.putPrivate(t, s.KeyPath, key, mode, s.User)
	}
	if s.CertificateChainPath != "" {
		f.putPrivate(t, s.CertificateChainPath, chain, mode, s.User)
	}
	return nil
}
