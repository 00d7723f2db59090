package node

import (
	"encoding/json"
	"maps"
	"slices"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"podd/internal/text"
)

// maxConfigValue and maxConfigLog bound the log line with the configuration, in bytes. Journald
// and syslog split long lines.
const (
	maxConfigValue = 400
	maxConfigLog   = 10_000
)

// configAttrs returns the fields of a configuration as attributes of one log line, sorted by
// name. It truncates long values, and leaves out fields that would make the line too long; the
// line says how many. /configz has the whole configuration. The configuration must be masked.
func configAttrs(kc *kubeletv1beta1.KubeletConfiguration) []any {
	encoded, err := json.Marshal(kc)
	fields := map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(encoded, &fields)
	}
	if err != nil {
		return []any{"error", err}
	}
	var attrs []any
	size, omitted := 0, 0
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		value := string(fields[name])
		var plain string
		if json.Unmarshal(fields[name], &plain) == nil {
			value = plain
		}
		value = text.Truncate(value, maxConfigValue)
		if size += len(name) + len(value) + len(`="" `); size > maxConfigLog {
			omitted++
			continue
		}
		attrs = append(attrs, name, value)
	}
	if omitted > 0 {
		attrs = append(attrs, "fields_omitted", omitted)
	}
	return attrs
}
