import java.io.File;
import org.eclipse.jgit.api.Git;

/** Clones, shallow clones and fetches by JGit: clone|shallow|fetch URL FOLDER. Prints the id of the remote's main branch. */
public class Client {
    public static void main(String[] args) throws Exception {
        String url = args[1];
        File target = new File(args[2]);
        if (args[0].equals("fetch")) {
            try (Git git = Git.open(target)) {
                var result = git.fetch().setRefSpecs("+refs/heads/*:refs/remotes/origin/*").call();
                System.out.println(result.getAdvertisedRef("refs/heads/main").getObjectId().name());
            }
            return;
        }
        var clone = Git.cloneRepository().setURI(url).setDirectory(target).setBare(true);
        if (args[0].equals("shallow")) {
            clone.setDepth(1);
        }
        try (Git git = clone.call()) {
            System.out.println(git.getRepository().resolve("refs/heads/main").name());
        }
    }
}
