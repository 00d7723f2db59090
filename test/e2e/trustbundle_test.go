package e2e

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	"podd/test/cluster"
)

// trusting is a pod with a bundle of a name, and those of a signer.
const trusting = `
apiVersion: v1
kind: Pod
metadata: {name: trusting}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ${IMAGE}
    command: [/bin/sh, -c, "trap 'exit 0' TERM; : > /out/trusting; while :; do cat /trust/named.pem > /out/.named; mv /out/.named /out/named;
      cat /trust/signed.pem > /out/.signed; mv /out/.signed /out/signed; cat /trust/none.pem > /out/.none; mv /out/.none /out/none; sleep 0.05; done"]
    volumeMounts:
    - {name: out, mountPath: /out}
    - {name: trust, mountPath: /trust}
  volumes:
  - {name: out, hostPath: {path: ${OUT}, type: Directory}}
  - name: trust
    projected:
      sources:
      - clusterTrustBundle: {name: roots, path: named.pem}
      - clusterTrustBundle: {signerName: example.com/signer, labelSelector: {matchLabels: {live: "yes"}}, path: signed.pem, optional: true}
      - clusterTrustBundle: {name: no-such-bundle, path: none.pem, optional: true}
`

func TestTrustBundlesReachAPodAndFollowTheCluster(t *testing.T) {
	m := meet(t)
	if err := m.server.NodeKubeconfig(m.kubeconfig(), m.podd.NodeName()); err != nil {
		t.Fatal(err)
	}
	m.start()
	text, err := os.ReadFile(m.server.ClientCA())
	if err != nil {
		t.Fatal(err)
	}
	authority := string(text)
	other, err := cluster.OtherAuthority()
	if err != nil {
		t.Fatal(err)
	}
	bundle := func(name, signer, live, text string) {
		t.Helper()
		spec := map[string]any{"trustBundle": text}
		if signer != "" {
			spec["signerName"] = signer
		}
		metadata := map[string]any{"name": name, "labels": map[string]any{"live": live}}
		o := cluster.Object{"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle", "spec": spec, "metadata": metadata}
		var old certificatesv1.ClusterTrustBundle
		if err := m.server.Client().Get(t.Context(), o, &old); err == nil {
			metadata["resourceVersion"] = old.ResourceVersion // which this kind wants
		}
		if err := m.server.Client().Apply(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	m.bind(m.vars().Replace(trusting))
	m.eventually("it waits for its bundle", func(ctx context.Context) error {
		text, err := m.server.Client().Raw(ctx, "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=trusting")
		if want := `clustertrustbundle \"roots\" not found`; err == nil && !strings.Contains(string(text), want) {
			err = fmt.Errorf("no event has %s: %s", want, text)
		}
		return err
	})
	if m.marked("trusting") {
		t.Error("it runs without its bundle")
	}
	bundle("roots", "", "yes", "# ours\n"+authority)
	m.mark("trusting")
	// has waits until a file has these certificates, each once.
	has := func(file string, want ...string) {
		t.Helper()
		m.eventually(file+" has the certificates", func(context.Context) error {
			text, err := os.ReadFile(filepath.Join(m.out, file))
			var got []string
			for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
				got = append(got, string(pem.EncodeToMemory(block)))
			}
			if err == nil && (len(got) != len(want) || strings.Contains(string(text), "#")) {
				err = fmt.Errorf("got %q", text)
			}
			for _, w := range want {
				if err == nil && !strings.Contains(string(text), w) {
					err = errors.New("another one")
				}
			}
			return err
		})
	}
	has("named", authority)
	has("none")
	has("signed")
	bundle("example.com:signer:a", "example.com/signer", "yes", authority)
	has("signed", authority)
	bundle("example.com:signer:b", "example.com/signer", "yes", other+authority)
	bundle("example.com:signer:c", "example.com/signer", "no", other)
	has("signed", authority, other)
	began := time.Now()
	bundle("roots", "", "yes", other)
	has("named", other)
	t.Logf("a change reached the container in %s", time.Since(began).Round(time.Millisecond))
	m.delete("trusting")
	m.gone("trusting")
}

// greedy is a pod with all bundles of a signer.
const greedy = `
apiVersion: v1
kind: Pod
metadata: {name: greedy}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ${IMAGE}
    command: [/bin/sh, -c, "trap 'exit 0' TERM; grep -c BEGIN /trust/all.pem > /out/.greedy; mv /out/.greedy /out/greedy; while :; do sleep 0.05; done"]
    volumeMounts:
    - {name: out, mountPath: /out}
    - {name: trust, mountPath: /trust}
  volumes:
  - {name: out, hostPath: {path: ${OUT}, type: Directory}}
  - name: trust
    projected: {sources: [{clusterTrustBundle: {signerName: example.com/large, labelSelector: {}, path: all.pem}}]}
`

// An apiserver takes bundles of 1 MiB: a signer's eleven are more than podd gives a container.
func TestTrustBundlesOfMoreThanTenMiBAreToldOnThePod(t *testing.T) {
	m := join(t)
	authority, err := os.ReadFile(m.server.ClientCA())
	if err != nil {
		t.Fatal(err)
	}
	bundle := func(i int) cluster.Object {
		text := string(authority) + strings.Repeat("# nothing\n", (1<<20-len(authority))/10)
		return cluster.Object{"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle", "metadata": map[string]any{"name": fmt.Sprintf("example.com:large:%d", i)},
			"spec": map[string]any{"signerName": "example.com/large", "trustBundle": text}}
	}
	const bundles = 11
	for i := range bundles {
		if err := m.server.Client().Create(t.Context(), bundle(i)); err != nil {
			t.Fatal(err)
		}
	}
	m.bind(m.vars().Replace(greedy))
	m.told("greedy", "FailedMount", "the selected clusterTrustBundles have more than the limit of 10 MiB in total: select fewer")
	if m.marked("greedy") {
		t.Error("it runs without its bundles")
	}
	if err := m.server.Client().Delete(t.Context(), bundle(0)); err != nil {
		t.Fatal(err)
	}
	m.mark("greedy")
	if got := strings.TrimSpace(m.contents("greedy")); got != "1" {
		t.Errorf("the container has %q certificates, want the one that all bundles have", got)
	}
	m.delete("greedy")
	m.gone("greedy")
}
