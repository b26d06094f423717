module swarm.k8slab.info/go-worker

go 1.24
