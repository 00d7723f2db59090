package credentials

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	configv1 "k8s.io/kubelet/config/v1"

	"podd/internal/pod"
)

// ServiceAccounts gives access to the service accounts of a cluster. Both methods block for
// seconds at most.
type ServiceAccounts interface {
	ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	RequestToken(ctx context.Context, namespace, account string, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
}

// NoServiceAccounts serves a node without a cluster: plugins get no tokens.
var NoServiceAccounts ServiceAccounts

// serviceAccount is a service account for which a plugin finds credentials (KEP-4412).
type serviceAccount struct {
	Source      pod.CredentialSource
	Annotations map[string]string // the ones that the plugin wants
	Pod         string            // the pod's UID, if the token belongs to no other pod
	pod         *v1.Pod
}

// accountName returns the service account of a pod of the cluster. The node's own pods have
// none: the apiserver gives no tokens for them.
func accountName(p *v1.Pod) string {
	if pod.IsStatic(p) {
		return ""
	}
	return p.Spec.ServiceAccountName
}

// serviceAccountFor returns the service account of a pod as the plugin wants it. It is nil
// for none, which is correct if the plugin does not require one. ok is false if the plugin
// must not be asked.
func (p *provider) serviceAccountFor(ctx context.Context, of *v1.Pod) (a *serviceAccount, ok bool, err error) {
	want, name := p.config.TokenAttributes, accountName(of)
	switch {
	case want == nil:
		return nil, true, nil
	case name == "":
		return nil, !*want.RequireServiceAccount, nil
	}
	found, err := p.accounts.ServiceAccount(ctx, of.Namespace, name)
	if err != nil {
		return nil, false, fmt.Errorf("get service account %s/%s: %w", of.Namespace, name, err)
	}
	a = &serviceAccount{pod: of, Annotations: map[string]string{}, Source: pod.CredentialSource{
		Account: true, Namespace: of.Namespace, Name: name, UID: string(found.UID),
	}}
	for _, key := range want.RequiredServiceAccountAnnotationKeys {
		value, there := found.Annotations[key]
		if !there {
			return nil, false, nil // this workload has not asked for it
		}
		a.Annotations[key] = value
	}
	for _, key := range want.OptionalServiceAccountAnnotationKeys {
		if value, there := found.Annotations[key]; there {
			a.Annotations[key] = value
		}
	}
	if want.CacheType == configv1.TokenServiceAccountTokenCacheType {
		a.Pod = string(of.UID)
	}
	return a, true, nil
}

// scope identifies the owner of a cache entry's credentials; empty if they are everybody's.
func (a *serviceAccount) scope() string {
	if a == nil {
		return ""
	}
	text, _ := json.Marshal(a) // of strings: cannot fail; the keys of a map are sorted
	return string(text)
}

func (a *serviceAccount) annotations() map[string]string {
	if a == nil || len(a.Annotations) == 0 {
		return nil
	}
	return maps.Clone(a.Annotations)
}

func (a *serviceAccount) source() pod.CredentialSource {
	if a == nil {
		return pod.CredentialSource{}
	}
	return a.Source
}

// token requests the token for the plugin, bound to the pod; empty without an account.
func (p *provider) token(ctx context.Context, a *serviceAccount) (token string, expires time.Time, err error) {
	if a == nil {
		return "", time.Time{}, nil
	}
	got, err := p.accounts.RequestToken(ctx, a.Source.Namespace, a.Source.Name, &authenticationv1.TokenRequest{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(a.Source.UID)},
		Spec: authenticationv1.TokenRequestSpec{
			Audiences:      []string{p.config.TokenAttributes.ServiceAccountTokenAudience},
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: a.pod.Name, UID: a.pod.UID},
		},
	})
	if err != nil {
		return "", time.Time{}, fmt.Errorf("request a token of service account %s/%s: %w", a.Source.Namespace, a.Source.Name, err)
	}
	return got.Status.Token, got.Status.ExpirationTimestamp.Time, nil
}

// maxRememberedAccounts bounds the number of pods with remembered accounts.
const maxRememberedAccounts = 1000

// rememberAccounts records the accounts that gave a pod credentials, for PodCredentials.
func (k *Keyring) rememberAccounts(p *v1.Pod, auths []pod.RegistryAuth) {
	for i := range auths {
		if !auths[i].Source.Account {
			continue
		}
		k.mu.Lock()
		for uid := range k.accounts {
			if len(k.accounts) < maxRememberedAccounts {
				break
			}
			delete(k.accounts, uid)
		}
		k.accounts[p.UID] = auths[i].Source
		k.mu.Unlock()
		return
	}
}

// ServiceAccountFor returns the service account, as namespace/name, for which plugins get tokens
// for an image and a pod; empty if they get none. Pods of other accounts may not have the
// credentials that these plugins return.
func (k *Keyring) ServiceAccountFor(ref string, p *v1.Pod) string {
	name := accountName(p)
	if k.cfg.Providers == nil || name == "" {
		return ""
	}
	at, err := imageLocation(ref)
	if err != nil {
		return ""
	}
	for _, provider := range k.cfg.Providers.all {
		if provider.config.TokenAttributes != nil && provider.matches(at) {
			return p.Namespace + "/" + name
		}
	}
	return ""
}
