# The images of examples/ that podd does not bring, made of Debian's packages.

# Their directory: $$examples; empty where they cannot be made, and the test that needs them says so.
examples = examples=$$(hack/build-example-images.sh) || { echo "no images of the examples: their test is skipped" >&2; examples=; }

.PHONY: example-images
example-images: ## make the images of examples/ that podd does not bring, out of Debian's packages, into build/example-images
	@set -e; images=$$(hack/build-example-images.sh); \
	mkdir -p build/example-images; cp "$$images"/*.tar build/example-images/; \
	echo "for example: cp build/example-images/postgres.tar /var/lib/podd/images/"
