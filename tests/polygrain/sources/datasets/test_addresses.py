from polygrain.sources.datasets.addresses import SOURCES


def test_sources__checksums_are_those_of_torchvision_where_it_has_them() -> None:
    from torchvision import datasets

    published = {archive.url.rsplit("/", 1)[1]: archive.md5 for s in SOURCES.values() for archive in s.archives}
    assert published["food-101.tar.gz"] == datasets.Food101._MD5
    assert published["dtd-r1.0.1.tar.gz"] == datasets.DTD._MD5
    assert published["cifar-10-python.tar.gz"] == datasets.CIFAR10.tgz_md5
    assert published["cifar-100-python.tar.gz"] == datasets.CIFAR100.tgz_md5
    for file, md5 in datasets.Flowers102._file_dict.values():
        assert published[file] == md5
    for url, md5 in datasets.OxfordIIITPet._RESOURCES:
        assert published[url.rsplit("/", 1)[1]] == md5
