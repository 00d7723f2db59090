package bytesize

import "testing"

func TestSizesAsTheKubeletWritesThem(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1 << 10: "1.0 KiB", 1536: "1.5 KiB", 1 << 20: "1.0 MiB", 5 << 29: "2.5 GiB", 3 << 40: "3.0 TiB", 5 << 50: "5120.0 TiB",
	} {
		if got := Format(bytes); got != want {
			t.Errorf("%d: got %q, want %q", bytes, got, want)
		}
	}
}

func TestMebibytesAreRoundedHalfUp(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0.0 MiB", 3 << 20: "3.0 MiB", 17 << 18: "4.3 MiB", 50_000_000: "47.7 MiB"} {
		if got := Mebibytes(bytes); got != want {
			t.Errorf("%d: got %q, want %q", bytes, got, want)
		}
	}
}
