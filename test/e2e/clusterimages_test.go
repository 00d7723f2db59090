package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	containerv1 "github.com/google/go-containerregistry/pkg/v1"
	v1 "k8s.io/api/core/v1"

	"podd/test/cluster"
)

// A credential provider gets a token of the pod's service account, and finds the registry's
// password by it; a pod of another account gets neither that nor the image that is there.
func TestAPluginFindsTheCredentialsOfAPodsServiceAccount(t *testing.T) {
	m := meet(t)
	host := m.registryOf(map[string]containerv1.Image{"private/app:1": busybox(t, "account")}, forReaders)
	image := host + "/private/app:1"
	m.forget(image)
	dir := filepath.Join(m.podd.Dir, "plugins")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// The second part of a token, decoded, says whose it is.
	plugin := `#!/bin/sh
request=$(cat)
token=$(echo "$request" | sed 's/.*"serviceAccountToken":"\([^"]*\)".*/\1/')
claims=$(echo "$token" | cut -d. -f2 | tr '_-' '/+' | { cat; echo ===; } | base64 -di 2>/dev/null)
password=wrong
case $claims in *registry.test*system:serviceaccount:default:robot*) password=right ;; esac
echo '{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": "Registry", "auth": {"` + host + `": {"username": "reader", "password": "'$password'"}}}'
`
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: finder
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: [%q]
  defaultCacheDuration: 1h
  tokenAttributes: {serviceAccountTokenAudience: registry.test, cacheType: ServiceAccount, requireServiceAccount: true}
`, host)
	for name, text := range map[string]string{"finder": plugin, "config.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	m.podd.Args = append(m.podd.Args, "--image-credential-provider-bin-dir="+dir, "--image-credential-provider-config="+filepath.Join(dir, "config.yaml"))
	for _, text := range []string{
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: robot}}",
		"{apiVersion: v1, kind: ServiceAccount, metadata: {name: other}}",
		// A node may request tokens of the audiences that it was given (ServiceAccountNodeAudienceRestriction).
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: audience}, rules: [{apiGroups: [''], resources: [registry.test], verbs: [request-serviceaccounts-token-audience]}]}",
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: audience}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: audience}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:nodes'}]}",
	} {
		if err := m.server.Client().Create(t.Context(), m.document(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.server.NodeKubeconfig(m.kubeconfig(), m.podd.NodeName()); err != nil {
		t.Fatal(err)
	}
	m.start()
	of := func(name, account string) cluster.Object {
		o := m.document(withImage(m.podOf(name, ": > /out/"+name+"; ${REST}", "serviceAccountName: "+account), image))
		return o
	}
	if err := m.server.Client().Create(t.Context(), of("reader", "robot")); err != nil {
		t.Fatal(err)
	}
	m.mark("reader")
	m.shown("reader", "ready", isReady)
	if err := m.server.Client().Create(t.Context(), of("stranger", "other")); err != nil {
		t.Fatal(err)
	}
	m.shown("stranger", "refused", waitsFor("ErrImagePull", "ImagePullBackOff"))
	if err := m.server.Client().Create(t.Context(), of("friend", "robot")); err != nil {
		t.Fatal(err)
	}
	m.mark("friend")
	if m.marked("stranger") {
		t.Error("a pod of another account runs with the image")
	}
	m.delete("reader", "stranger", "friend")
	m.gone("reader", "stranger", "friend")
}

// forReaders is a registry for the user "reader", whose password is "right".
func forReaders(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "reader" || password != "right" {
			w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// A Secret that is not there yet is waited for.
func TestAPodOfTheClusterPullsWithItsSecret(t *testing.T) {
	m := join(t)
	images := map[string]containerv1.Image{"private/own:1": busybox(t, "own"), "private/none:1": busybox(t, "none")}
	host := m.registryOf(images, forReaders)
	for name := range images {
		m.forget(host + "/" + name)
	}
	create := func(text string) {
		t.Helper()
		if err := m.server.Client().Create(t.Context(), m.document(text)); err != nil {
			t.Fatal(err)
		}
	}
	create(withImage(m.podOf("own", ": > /out/own; ${REST}", "imagePullSecrets: [{name: registry}]"), host+"/private/own:1"))
	m.shown("own", "waiting for its Secret", waitsFor("ErrImagePull", "ImagePullBackOff"))
	m.told("own", "FailedToRetrieveImagePullSecret", "registry")
	create(fmt.Sprintf(`{apiVersion: v1, kind: Secret, metadata: {name: registry}, type: kubernetes.io/dockerconfigjson, stringData: {.dockerconfigjson: '{"auths": {%q: {"username": "reader", "password": "right"}}}'}}`, host))
	m.mark("own")
	create(withImage(m.podOf("none", ": > /out/none; ${REST}"), host+"/private/none:1"))
	m.shown("none", "refused", waitsFor("ErrImagePull", "ImagePullBackOff"))
	m.delete("own", "none")
	m.gone("own", "none")
}

// waitsFor says that a pod's first container waits for one of the reasons.
func waitsFor(reasons ...string) func(p *v1.Pod) error {
	return func(p *v1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			if w := c.State.Waiting; w != nil && slices.Contains(reasons, w.Reason) {
				return nil
			}
		}
		return fmt.Errorf("it does not wait with %q", reasons)
	}
}
