package credentials

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podd/internal/pod"
)

// fakeAccounts has accounts "team/a" … with a UID and annotations; a token says whose it is.
type fakeAccounts struct {
	mu          sync.Mutex
	annotations map[string]map[string]string
	requests    []string
	err         error
}

func (f *fakeAccounts) ServiceAccount(_ context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	annotations, there := f.annotations[namespace+"/"+name]
	if !there {
		return nil, errors.New("not found")
	}
	return &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: pod.UID("uid-" + name), Annotations: annotations}}, nil
}

func (f *fakeAccounts) RequestToken(_ context.Context, namespace, account string, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	f.requests = append(f.requests, fmt.Sprintf("%s/%s %s for %v, bound to %s %s", namespace, account, r.UID, r.Spec.Audiences, r.Spec.BoundObjectRef.Name, r.Spec.BoundObjectRef.UID))
	out := r.DeepCopy()
	out.Status = authenticationv1.TokenRequestStatus{Token: "token-" + account + "-" + string(r.Spec.BoundObjectRef.UID), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))}
	return out, nil
}

func of(namespace, name, account string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: pod.UID(name)}, Spec: v1.PodSpec{ServiceAccountName: account}}
}

const tokens = "  tokenAttributes: {serviceAccountTokenAudience: registry, cacheType: %s, requireServiceAccount: %v, requiredServiceAccountAnnotationKeys: [%s], optionalServiceAccountAnnotationKeys: [example.com/zone]}\n"

// echoing is a plugin whose password is a word and what it was given of the account.
const echoing = `request=$(cat); echo "$request" >>"$LOG"
user=$(echo "$request" | sed 's/.*"serviceAccountToken":"\([^"]*\)".*/\1/; t; s/.*/nobody/')
cat <<END
{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": "Registry", "auth": {"reg.test": {"username": "$user", "password": "p$ECHO"}}}
END
`

func TestPluginsFindCredentialsForAServiceAccount(t *testing.T) {
	accounts := &fakeAccounts{annotations: map[string]map[string]string{
		"team/a": {"example.com/role": "reader", "example.com/zone": "z", "other": "x"}, "team/b": {"example.com/role": "writer"}, "team/plain": {},
	}}
	static := of("team", "static", "a")
	static.Annotations = map[string]string{pod.AnnotationSource: "file"}
	for _, tc := range []struct {
		name, cache string
		require     bool
		key         string
		pod         *v1.Pod
		user        string // "" for no credentials
		source      pod.CredentialSource
	}{
		{"its account", "ServiceAccount", true, "example.com/role", of("team", "p", "a"), "token-a-p", pod.CredentialSource{Account: true, Namespace: "team", Name: "a", UID: "uid-a"}},
		{"an account that has not asked for it", "ServiceAccount", true, "example.com/role", of("team", "p", "plain"), "", pod.CredentialSource{}},
		{"no account, and one is required", "ServiceAccount", true, "", of("team", "p", ""), "", pod.CredentialSource{}},
		{"no account, and none is required", "ServiceAccount", false, "", of("team", "p", ""), "nobody", pod.CredentialSource{}},
		{"a pod of the node's own", "ServiceAccount", false, "", static, "nobody", pod.CredentialSource{}},
		{"a token for one pod", "Token", true, "", of("team", "p", "b"), "token-b-p", pod.CredentialSource{Account: true, Namespace: "team", Name: "b", UID: "uid-b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("LOG", filepath.Join(t.TempDir(), "log"))
			cfg := plugins(t, providerHead+aProvider("p", "reg.test", fmt.Sprintf(tokens, tc.cache, tc.require, tc.key)), map[string]string{"p": echoing})
			cfg.Accounts = accounts
			ps, err := LoadProviders(cfg)
			if err != nil {
				t.Fatal(err)
			}
			k := New(Config{Providers: ps})
			got, err := k.Lookup(t.Context(), "reg.test/app:1", tc.pod)
			if err != nil {
				t.Fatal(err)
			}
			if tc.user == "" {
				if len(got) > 0 {
					t.Errorf("got %+v, want none", got)
				}
				return
			}
			if len(got) != 1 || got[0].Username != tc.user || got[0].Source != tc.source {
				t.Fatalf("got %+v, want user %s of %+v", got, tc.user, tc.source)
			}
			own, _ := k.PodCredentials("reg.test/app:1", tc.pod)
			if tc.source.Account != (len(own) == 1 && own[0].Source == tc.source) {
				t.Errorf("its own: got %+v", own)
			}
			said, _ := os.ReadFile(os.Getenv("LOG"))
			if strings.Contains(string(said), "other") || tc.key != "" && !strings.Contains(string(said), `"example.com/role":"reader"`) {
				t.Errorf("the plugin was told %s", said)
			}
		})
	}
	if want := "team/a uid-a for [registry], bound to p p"; accounts.requests[0] != want {
		t.Errorf("requested %q, want %q", accounts.requests[0], want)
	}
}

func TestCredentialsAreKeptForAnAccountOrForAPod(t *testing.T) {
	for cache, want := range map[string]int{"ServiceAccount": 2, "Token": 3} { // runs for two pods of a and one of b, twice each
		t.Run(cache, func(t *testing.T) {
			t.Setenv("LOG", filepath.Join(t.TempDir(), "log"))
			cfg := plugins(t, providerHead+aProvider("p", "reg.test", fmt.Sprintf(tokens, cache, true, "")), map[string]string{"p": echoing})
			cfg.Accounts = &fakeAccounts{annotations: map[string]map[string]string{"team/a": {}, "team/b": {}}}
			ps, err := LoadProviders(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				for _, p := range []*v1.Pod{of("team", "one", "a"), of("team", "two", "a"), of("team", "three", "b")} {
					got, err := ps.lookup(t.Context(), "reg.test/app", p)
					if err != nil || len(got) != 1 || !strings.HasPrefix(got[0].Username, "token-"+p.Spec.ServiceAccountName) {
						t.Fatalf("%s: got %+v %v", p.Name, got, err)
					}
				}
			}
			said, _ := os.ReadFile(os.Getenv("LOG"))
			if got := strings.Count(string(said), "\n"); got != want {
				t.Errorf("the plugin ran %d times, want %d", got, want)
			}
		})
	}
}

func TestAPluginThatReturnsTheTokenAsPasswordMustSayToken(t *testing.T) {
	const returns = `t=$(sed 's/.*"serviceAccountToken":"\([^"]*\)".*/\1/')
echo '{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", "cacheKeyType": "Registry", "auth": {"reg.test": {"username": "u", "password": "'$t'"}}}'
`
	for cache, want := range map[string]string{"Token": "", "ServiceAccount": "only cacheType Token allows"} {
		cfg := plugins(t, providerHead+aProvider("p", "reg.test", fmt.Sprintf(tokens, cache, true, "")), map[string]string{"p": returns})
		cfg.Accounts = &fakeAccounts{annotations: map[string]map[string]string{"team/a": {}}}
		ps, err := LoadProviders(cfg)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ps.lookup(t.Context(), "reg.test/app", of("team", "p", "a"))
		if want == "" && (err != nil || len(got) != 1) || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "token-a")) {
			t.Errorf("%s: got %+v, %v", cache, got, err)
		}
	}
}

func TestWhatKeepsATokenFromAPluginIsTold(t *testing.T) {
	accounts := &fakeAccounts{annotations: map[string]map[string]string{"team/a": {}}, err: errors.New("audience refused")}
	cfg := plugins(t, providerHead+aProvider("p", "reg.test", fmt.Sprintf(tokens, "Token", true, "")), map[string]string{"p": "exit 1\n"})
	cfg.Accounts = accounts
	ps, err := LoadProviders(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for account, want := range map[string]string{
		"a":    "credential provider p: request a token of service account team/a: audience refused",
		"none": "credential provider p: get service account team/none: not found",
	} {
		if got, err := ps.lookup(t.Context(), "reg.test/app", of("team", "p", account)); err == nil || err.Error() != want || len(got) > 0 {
			t.Errorf("%s: got %v, %v, want %s", account, got, err, want)
		}
	}
}

func TestWhatIsWrongWithTokenAttributes(t *testing.T) {
	for text, want := range map[string]string{
		"{serviceAccountTokenAudience: x, cacheType: Token}":                                                                                                                    "tokenAttributes.requireServiceAccount: is missing",
		"{cacheType: Token, requireServiceAccount: true}":                                                                                                                       "tokenAttributes.serviceAccountTokenAudience: is missing",
		"{serviceAccountTokenAudience: x, cacheType: Ever, requireServiceAccount: true}":                                                                                        `tokenAttributes.cacheType: got "Ever"`,
		"{serviceAccountTokenAudience: x, cacheType: Token, requireServiceAccount: false, requiredServiceAccountAnnotationKeys: [a]}":                                           "needs requireServiceAccount: true",
		"{serviceAccountTokenAudience: x, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [\"a b\"]}":                                      "is not the key of an annotation",
		"{serviceAccountTokenAudience: x, cacheType: Token, requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [a], optionalServiceAccountAnnotationKeys: [a]}": "is named twice",
	} {
		cfg := plugins(t, providerHead+aProvider("p", "reg.test", "  tokenAttributes: "+text+"\n"), map[string]string{"p": ""})
		cfg.Accounts = &fakeAccounts{}
		if _, err := LoadProviders(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", text, err, want)
		}
	}
}
