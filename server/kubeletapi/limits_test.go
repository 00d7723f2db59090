package kubeletapi

import (
	"context"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// TestOneAddressHasFewReviewsInFlight: an apiserver that is slow is slow for it alone.
func TestOneAddressHasFewReviewsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &slowReviewer{takes: 5 * time.Second}
		h := tokenGuard(r)
		var all sync.WaitGroup
		for i := range 2 * maxSourceReviews {
			all.Go(func() { askFrom(h, "192.0.2.7:1", fmt.Sprint("made up ", i)) })
		}
		synctest.Wait()
		if r.count() != maxSourceReviews {
			t.Errorf("%d reviews of one address, want %d", r.count(), maxSourceReviews)
		}
		if code := askFrom(h, "192.0.2.8:1", "right"); code != 200 {
			t.Errorf("another address: got %d", code)
		}
		all.Wait()
		before := r.count()
		if code := askFrom(h, "192.0.2.7:1", "right again"); code != 200 || r.count() != before+1 {
			t.Errorf("afterwards: got %d, want that it is reviewed", code)
		}
	})
}

// TestARevokedTokenIsAStrangers: whoever goes on sending it has a stranger's share.
func TestARevokedTokenIsAStrangers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const from = "192.0.2.1:9"
		r := &slowReviewer{revoked: map[string]bool{}}
		h := tokenGuard(r)
		if code := askFrom(h, from, "right"); code != 200 {
			t.Fatalf("its first request: got %d", code)
		}
		r.revoked["right"] = true
		for range 2 { // the apiserver is asked, and its answer expires
			time.Sleep(3 * time.Minute)
			if code := askFrom(h, from, "right"); code != 401 {
				t.Errorf("revoked: got %d", code)
			}
		}
		time.Sleep(3 * time.Minute)
		for i := range sourceBurst {
			askFrom(h, from, fmt.Sprint("made up ", i))
		}
		before := r.count()
		if code := askFrom(h, from, "right"); code != 401 || r.count() != before {
			t.Errorf("after as many unknown tokens as are reviewed: got %d after %d reviews, want none", code, r.count()-before)
		}
	})
}

// stubborn does not end a review in time.
type stubborn struct{ slowReviewer }

func (s *stubborn) ReviewToken(ctx context.Context, token string) (authenticationv1.UserInfo, bool, error) {
	return s.slowReviewer.ReviewToken(context.WithoutCancel(ctx), token)
}

// TestAKnownTokenThatHadNoTurnIsTold: the operator must know that it is the apiserver.
func TestAKnownTokenThatHadNoTurnIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stubborn{}
		w := newGuardWithLog(s, func(c *Config) { c.Admit, c.Reject = nil, nil }) // which many call at once here
		name := func(i int) string { return fmt.Sprint("Bearer right ", i) }
		for i := range maxKnownReviews + 1 {
			w.send("/metrics", name(i))
			time.Sleep(sourceEvery)
		}
		time.Sleep(3 * time.Minute)
		s.mu.Lock()
		s.takes = time.Hour
		s.mu.Unlock()
		var all sync.WaitGroup
		for i := range maxKnownReviews {
			all.Go(func() { w.send("/metrics", name(i)) })
		}
		synctest.Wait()
		began := time.Now()
		if got := w.send("/metrics", name(maxKnownReviews)); got.Code != 401 || time.Since(began) != reviewTimeout || w.logged("review a token: context deadline exceeded") != 1 {
			t.Errorf("got %d after %s; the log has %s", got.Code, time.Since(began), w.log)
		}
		all.Wait()
	})
}

// TestAddressesThatAreQuietMakeRoom, and are looked for every two seconds at most: to look
// at thousands for each request would help whoever sends them.
func TestAddressesThatAreQuietMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens := newTokens()
		admit := func(from string) func() {
			t.Helper()
			leave, ok := tokens.acquireReview(from)
			if !ok {
				t.Fatalf("%s: it is not reviewed", from)
			}
			return leave
		}
		expect := func(what string, want int) {
			t.Helper()
			if got := len(tokens.sources); got != want {
				t.Errorf("%s: %d addresses have a limiter of their own, want %d", what, got, want)
			}
		}
		busy := admit("10.2.0.1:1") // in flight
		for range 3 {
			admit("10.2.0.2:1")() // has spent more than it gets back in two seconds
		}
		for i := range maxSources - 2 {
			admit(fmt.Sprintf("10.1.%d.%d:1", i/256, i%256))()
		}
		expect("all that there may be", maxSources)
		time.Sleep(time.Second)
		admit("10.3.0.1:1")()
		expect("all have just sent something", maxSources)
		time.Sleep(time.Second)
		admit("10.3.0.1:1")()
		expect("they are quiet, and were looked at a second ago", maxSources)
		time.Sleep(time.Second)
		admit("10.3.0.1:1")()
		expect("two seconds ago", 3) // the busy two, and it
		busy()
	})
}

// TestAnUnchangedFileIsReadOnce: each handshake looks at it.
func TestAnUnchangedFileIsReadOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certify(t, pkix.Name{CommonName: "ca"}, nil, nil).Certificate[0]})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := ClientAuthorities(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if first := a.Pool(); first != a.Pool() {
		t.Error("it was read again")
	}
}

// TestWhyAFileOfTheConfigurationCannotBeUsed is what podd ends with at its start.
func TestWhyAFileOfTheConfigurationCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	if _, err := SelfSigned(dir, "node0", nil); err != nil {
		t.Fatal(err)
	}
	certFile, keyFile, junk := filepath.Join(dir, certificateName), filepath.Join(dir, keyName), filepath.Join(dir, "junk")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	pair := func(certFile, keyFile string) error {
		_, err := ConfiguredCertificate(certFile, keyFile, nil)
		return err
	}
	authorities := func(file string) error { _, err := ClientAuthorities(file, nil); return err }
	for name, c := range map[string]struct {
		err          error
		prefix, text string
	}{
		"a certificate that is not there":  {pair(dir+"/none", keyFile), "stat " + dir + "/none: ", "no such file"},
		"a key that is not there":          {pair(certFile, dir+"/none"), "serving certificate " + certFile + ": ", "no such file"},
		"a certificate that is none":       {pair(junk, keyFile), "serving certificate " + junk + ": ", "PEM"},
		"authorities that are not there":   {authorities(dir + "/none"), "clientCAFile: ", "no such file"},
		"authorities that are a directory": {authorities(dir), "clientCAFile: ", "is a directory"},
		"authorities that are none":        {authorities(junk), "clientCAFile " + junk + " has no certificate", ""},
	} {
		if c.err == nil || !strings.HasPrefix(c.err.Error(), c.prefix) || !strings.Contains(c.err.Error(), c.text) {
			t.Errorf("%s: got %v, want %q and %q", name, c.err, c.prefix, c.text)
		}
	}
}

// TestWhyNoCertificateCanBeMade is what podd ends with, too.
func TestWhyNoCertificateCanBeMade(t *testing.T) {
	for name, c := range map[string]struct {
		blocked string // by a directory, which is not empty; "" for the directory itself, by a file
		want    string
	}{
		"no directory":             {"", "not a directory"},
		"no place for the key":     {keyName, "file exists"},
		"none for the certificate": {certificateName, "file exists"},
	} {
		dir := filepath.Join(t.TempDir(), "pki")
		err := os.WriteFile(dir, nil, 0o600)
		if c.blocked != "" {
			err = errors.Join(os.Remove(dir), os.MkdirAll(filepath.Join(dir, c.blocked, "in the way"), 0o700))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := SelfSigned(dir, "node0", nil); err == nil || !strings.HasPrefix(err.Error(), "make a serving certificate: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
