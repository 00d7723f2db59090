package podapi

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestASecretIsDefaultedAsAnApiserverStoresIt(t *testing.T) {
	s := &v1.Secret{Data: map[string][]byte{"a": []byte("data"), "b": []byte("data")}, StringData: map[string]string{"b": "text", "c": ""}}
	want := &v1.Secret{Type: v1.SecretTypeOpaque, Data: map[string][]byte{"a": []byte("data"), "b": []byte("text"), "c": {}}}
	for range 2 {
		if DefaultSecret(s); cmp.Diff(want, s) != "" {
			t.Fatal(cmp.Diff(want, s))
		}
	}
	s = &v1.Secret{StringData: map[string]string{"a": "x"}, Type: v1.SecretTypeBasicAuth}
	if DefaultSecret(s); string(s.Data["a"]) != "x" || s.Type != v1.SecretTypeBasicAuth {
		t.Errorf("got %+v", s)
	}
}

func TestObjectsAreValidatedByUpstream(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "settings"}
	large := strings.Repeat("x", 1<<20)
	if errs := ValidateConfigMap(&v1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": large}}); len(errs) > 0 {
		t.Errorf("1 MiB: got %v", errs)
	}
	if errs := ValidateConfigMap(&v1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": large, "b": "x"}}); len(errs) != 1 || errs[0].ErrorBody() != "Too long: may not be more than 1048576 bytes" {
		t.Errorf("more than 1 MiB: got %v", errs)
	}
	if errs := ValidateSecret(&v1.Secret{ObjectMeta: meta, Type: v1.SecretTypeOpaque, Data: map[string][]byte{"a/b": nil}}); len(errs) != 1 || errs[0].Field != "data[a/b]" {
		t.Errorf("a slash: got %v", errs)
	}
	if errs := ValidateSecret(&v1.Secret{ObjectMeta: meta, Type: v1.SecretTypeTLS}); len(errs) != 2 {
		t.Errorf("TLS without a key: got %v", errs)
	}
}
