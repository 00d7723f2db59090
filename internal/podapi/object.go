package podapi

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// DefaultSecret fills in what a manifest leaves out, as the apiserver does when it stores a
// v1.Secret: type Opaque, and the values of stringData move to data, where they replace
// values of the same keys. It changes the Secret in place and is idempotent. A ConfigMap
// has no defaults.
func DefaultSecret(s *v1.Secret) {
	corev1.SetObjectDefaults_Secret(s)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

// ValidateConfigMap returns the apiserver's objections to a new ConfigMap, in its words and
// in no order; empty for a good one.
func ValidateConfigMap(c *v1.ConfigMap) field.ErrorList {
	var in core.ConfigMap
	if err := corev1.Convert_v1_ConfigMap_To_core_ConfigMap(c, &in, nil); err != nil {
		return field.ErrorList{field.InternalError(nil, fmt.Errorf("convert ConfigMap to upstream's internal form: %w", err))}
	}
	return validation.ValidateConfigMap(&in)
}

// ValidateSecret is ValidateConfigMap for a Secret, which must have been
// defaulted. Its errors may show values of the Secret.
func ValidateSecret(s *v1.Secret) field.ErrorList {
	var in core.Secret
	if err := corev1.Convert_v1_Secret_To_core_Secret(s, &in, nil); err != nil {
		return field.ErrorList{field.InternalError(nil, fmt.Errorf("convert Secret to upstream's internal form: %w", err))}
	}
	return validation.ValidateSecret(&in)
}
