package main

import (
	"archive/tar"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"podd/test/cluster/suiteimages"
)

// suiteFiles are what the images of upstream's end-to-end tests are made of. Upstream's
// own come from registries; these have the same names and what the tests use of them.
type suiteFiles struct{ base, agnhost, nnp, hostpath, pause string }

// images are those that upstream's tests use, under the names of the pinned release.
func (s *suiteFiles) images() ([]named, error) {
	base, err := os.ReadFile(s.base)
	if err != nil {
		return nil, err
	}
	agnhost, err := agnhostFiles(base, s.agnhost)
	if err != nil {
		return nil, err
	}
	served, err := registryFiles(s.pause)
	if err != nil {
		return nil, err
	}
	agnhost = append(agnhost, served...)
	nnp, err := binary(s.nnp)
	if err != nil {
		return nil, err
	}
	nnp.path, nnp.mode = "usr/local/bin/nnp", 0o6755 // set-uid, set-gid
	hostpath, err := binary(s.hostpath)
	if err != nil {
		return nil, err
	}
	hostpath.path = "hostpathplugin"
	environment := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	of := func(files []file, config v1.Config, names ...string) named {
		config.Env = environment
		return named{names, &image{base: base, files: files, config: config}}
	}
	page := []file{{path: "usr/share/web", mode: 0o755}, {path: "usr/share/web/index.html", mode: 0o644, content: []byte("Welcome to nginx!\n")}}
	picture := append(slices.Clone(agnhost), file{path: "data.json", mode: 0o644, content: []byte(`{"image": "nautilus.jpg"}` + "\n")})
	return []named{
		of(nil, v1.Config{Cmd: []string{"sh"}}, suiteimages.BusyBox, suiteimages.DNSTesting),
		of(agnhost, v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}}, suiteimages.Agnhost),
		// A test that changes a container's image asks which one runs: not another name of the same.
		of(agnhost, v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, Labels: map[string]string{"version": "previous"}}, suiteimages.AgnhostPrev),
		of(page, v1.Config{Cmd: []string{"busybox", "httpd", "-f", "-p", "80", "-h", "/usr/share/web"}}, suiteimages.Nginx, suiteimages.NginxNew),
		of(picture, v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"test-webserver"}}, suiteimages.Nautilus),
		of(nil, v1.Config{Cmd: []string{"id", "-u"}, User: "1234"}, suiteimages.NonRoot),
		of([]file{nnp}, v1.Config{Cmd: []string{"nnp"}}, suiteimages.NoNewPrivs),
		{[]string{suiteimages.Hostpath}, &image{base: base, files: []file{hostpath}, config: v1.Config{Env: environment}}},
	}, nil
}

// agnhostFiles are those that upstream's Dockerfile adds: the program under two names, a
// directory to write to, a certificate, and a user of two groups.
func agnhostFiles(base []byte, program string) ([]file, error) {
	agnhost, err := binary(program)
	if err != nil {
		return nil, err
	}
	agnhost.path = "agnhost"
	certificate, key, err := localhostCertificate()
	if err != nil {
		return nil, err
	}
	files := []file{
		agnhost,
		{path: "agnhost-2", mode: 0o777, link: "agnhost"},
		{path: "uploads", mode: 0o755},
		{path: "localhost.crt", mode: 0o644, content: certificate},
		{path: "localhost.key", mode: 0o644, content: key},
	}
	for name, more := range map[string]string{
		"etc/passwd": "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n",
		"etc/group":  "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n",
	} {
		content, err := fileOf(base, name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: name, mode: 0o644, content: append(content, more...)})
	}
	return files, nil
}

// registryFiles are the directory of agnhost's fake-registry-server, with the one image that the
// tests pull from it (test/images/agnhost/fakeregistryserver): a tag is a file with a digest,
// and what has a digest is in sha256/ab/abcdef…/data.
func registryFiles(pause string) ([]file, error) {
	const dir = "var/registry/pause"
	of, err := pauseImage(pause)
	if err != nil {
		return nil, err
	}
	img, err := of.build()
	if err != nil {
		return nil, err
	}
	blobs, manifest, err := blobsOf(img)
	if err != nil {
		return nil, err
	}
	files := []file{{path: dir + "/manifests/testing", mode: 0o644, content: []byte("sha256:" + manifest + "\n")}}
	for digest, content := range blobs {
		kind := "blobs"
		if digest == manifest {
			kind = "manifests"
		}
		files = append(files, file{path: path.Join(dir, kind, "sha256", digest[:2], digest, "data"), mode: 0o644, content: content})
	}
	return files, nil
}

// fileOf reads one file of a tar.
func fileOf(archive []byte, name string) ([]byte, error) {
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("the base has no /%s", name)
		}
		if err != nil {
			return nil, fmt.Errorf("read the base: %w", err)
		}
		if path.Clean(h.Name) == name {
			return io.ReadAll(r)
		}
	}
}

// localhostCertificate is a server's own: whoever asks it does not verify it.
func localhostCertificate() (certificate, key []byte, err error) {
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, NotBefore: epoch, NotAfter: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	if err != nil {
		return nil, nil, err
	}
	text, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}), nil
}
