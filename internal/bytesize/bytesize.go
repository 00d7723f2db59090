// Package bytesize formats sizes for users, as the kubelet does.
package bytesize

import "fmt"

// Format formats a number of bytes in the largest of the units B, KiB, MiB, GiB and TiB that
// it reaches, with one decimal from KiB on.
func Format(bytes int64) string {
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	v, unit := float64(bytes)/(1<<10), 0
	for v >= 1<<10 && unit < 3 {
		v, unit = v/(1<<10), unit+1
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGT"[unit])
}

// Mebibytes formats a number of bytes in MiB, with one decimal, rounded half up.
func Mebibytes(bytes int64) string {
	tenths := (bytes*10 + 1<<19) >> 20
	return fmt.Sprintf("%d.%d MiB", tenths/10, tenths%10)
}
