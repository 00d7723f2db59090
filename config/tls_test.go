package config

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// Hardening guides list suites by names that are older than those of crypto/tls, and some that
// it does not take for secure any more.
func TestCipherSuitesAndVersionsOfHardeningGuidesAreServed(t *testing.T) {
	const insecure = " is insecure, and is served to clients that have nothing "
	c, err := load(t, head+`tlsMinVersion: VersionTLS10
tlsCipherSuites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305,
  TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
  TLS_RSA_WITH_AES_256_GCM_SHA384, TLS_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA]
`, "--hostname-override=n", "--kubeconfig=/x")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"FILE:3: tlsMinVersion: VersionTLS10" + insecure + "newer: give VersionTLS12, unless there are such",
		"FILE:4: tlsCipherSuites[6]: TLS_RSA_WITH_AES_256_GCM_SHA384" + insecure + "better: leave it out, unless there are such",
		"FILE:4: tlsCipherSuites[7]: TLS_RSA_WITH_AES_128_GCM_SHA256" + insecure + "better: leave it out, unless there are such",
	}
	if !slices.Equal(c.Warnings, want) {
		t.Errorf("got warnings\n%s\nwant\n%s", strings.Join(c.Warnings, "\n"), strings.Join(want, "\n"))
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{MinVersion: c.API.MinVersion, CipherSuites: c.API.CipherSuites}
	server.StartTLS()
	defer server.Close()
	for suite, version := range map[uint16]uint16{
		tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256: tls.VersionTLS12,
		tls.TLS_RSA_WITH_AES_256_GCM_SHA384:             tls.VersionTLS12,
		tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA:          tls.VersionTLS10,
	} {
		conn, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{
			InsecureSkipVerify: true, MinVersion: version, MaxVersion: version, CipherSuites: []uint16{suite},
		})
		if err != nil {
			t.Errorf("%s: %v", tls.CipherSuiteName(suite), err)
			continue
		}
		if s := conn.ConnectionState(); s.CipherSuite != suite || s.Version != version {
			t.Errorf("got %s and %s, want %s and %s", tls.CipherSuiteName(s.CipherSuite), tls.VersionName(s.Version), tls.CipherSuiteName(suite), tls.VersionName(version))
		}
		_ = conn.Close()
	}
}

func TestTheSuitesOfTLS13CannotBeChosen(t *testing.T) {
	c, err := load(t, head+"tlsMinVersion: VersionTLS13\ntlsCipherSuites: [TLS_RSA_WITH_AES_256_GCM_SHA384]\n", "--hostname-override=n", "--kubeconfig=/x")
	if want := "FILE:4: tlsCipherSuites: has no effect with VersionTLS13, whose suites cannot be chosen"; err != nil || !slices.Equal(c.Warnings, []string{want}) {
		t.Errorf("got %+v (%v), want the warning %s", c, err, want)
	}
	if _, err := load(t, head+"tlsMinVersion: VersionTLS14\ntlsCipherSuites: [TLS_NONE]\n", "--hostname-override=n", "--kubeconfig=/x"); err == nil ||
		!strings.Contains(err.Error(), `FILE:4: tlsCipherSuites[0]: "TLS_NONE" is not a cipher suite`) || !strings.Contains(err.Error(), `FILE:3: tlsMinVersion: "VersionTLS14" is not supported`) {
		t.Errorf("got %v", err)
	}
}
